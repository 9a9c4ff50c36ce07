"""Makes and removes parts one by one, because each needs those before it: so `up` can be repeated and undone."""

from __future__ import annotations

from collections.abc import Sequence

from seep.deploy.cluster import Tell
from seep.deploy.ec2.part import CloudPart


def complete(parts: Sequence[CloudPart], tell: Tell) -> int:
    """Makes or completes parts that are missing or outdated; returns their number."""
    missing = [each for each in parts if _is_missing(each, tell)]
    for at, each in enumerate(missing, 1):
        tell(f"[{at}/{len(missing)}] create {each.label}")
        tell(f"    is {each.create()}")
    return len(missing)


def remove(parts: Sequence[CloudPart], tell: Tell) -> int:
    """Removes parts of which anything exists, the last one first; returns their number."""
    there = [each for each in reversed(parts) if each.left()]
    for at, each in enumerate(there, 1):
        tell(f"[{at}/{len(there)}] delete {each.label}")
        each.delete()
    return len(there)


def _is_missing(part: CloudPart, tell: Tell) -> bool:
    found = part.find()
    if found:
        tell(f"keep {part.label} ({found})")
    return found is None
