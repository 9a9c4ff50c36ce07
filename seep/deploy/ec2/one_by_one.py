"""Parts made and removed one by one, as each needs those before it: so `up` can be run again, resumed, and undone."""

from __future__ import annotations

from collections.abc import Sequence

from seep.deploy.cluster import Tell
from seep.deploy.ec2.part import CloudPart


def complete(parts: Sequence[CloudPart], tell: Tell) -> int:
    """Makes or completes those that are not as they should be; returns how many that were."""
    missing = [each for each in parts if _is_missing(each, tell)]
    for at, each in enumerate(missing, 1):
        tell(f"[{at}/{len(missing)}] create {each.label}")
        tell(f"    is {each.create()}")
    return len(missing)


def remove(parts: Sequence[CloudPart], tell: Tell) -> int:
    """Removes those of which anything is there, the last one first; returns how many that were."""
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
