"""Names and labels of a cluster's resources in Google Cloud, which tell them from all others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

#: The labels that say whose a thing is. A thing without the first is never touched.
CLUSTER = "seep-cluster"
ROLE = "seep-role"  #: master or worker
SETTINGS = "seep-settings"  #: a digest of what it was made from
RUN = "seep-run"  #: the run whose pool started it
VM = "seep-vm"  #: the pool's name for it

#: What the metadata of a VM hold for its start-up script; and where that says, among guest attributes, how it goes.
CORES = "seep-cores"
STATE = "seep/state"

#: Longest name, and longest value of a label.
LONGEST = 63
_DIGEST = 8
_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_TOLD = re.compile(r"([a-z0-9-]+)=([a-z0-9_-]*)")


def named(cluster: str, part: str) -> str:
    """The name of a cluster's thing; one too long, or not of `a-z0-9-`, is cut and ends in a digest of what it was.

    >>> named("demo", "worker-1"), named("demo", "run 7")
    ('seep-demo-worker-1', 'seep-demo-run-7-04ee2979')
    """
    prefix = f"seep-{cluster}-"
    return prefix + plain(part, LONGEST - len(prefix))


def plain(text: str, longest: int = LONGEST) -> str:
    """`text` in `a-z0-9-`: itself if it is, otherwise told from others by a digest."""
    if _PLAIN.fullmatch(text) and len(text) <= longest:
        return text
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower())[: longest - _DIGEST - 1].strip("-")
    return f"{kept}-{digest(text)}".removeprefix("-")


def digest(text: str) -> str:
    """Eight characters that differ where texts do.

    >>> digest("a"), digest("b")
    ('ca978112', '3e23e816')
    """
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def described(labels: Mapping[str, str]) -> str:
    """Labels as a description, for what cannot have any: rules of a firewall.

    >>> described({"seep-cluster": "demo", "team": "streams"})
    'seep-cluster=demo, team=streams'
    """
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def labels_of(found: Any) -> dict[str, str]:
    """The labels of an instance, of what a template makes, or in the description of a rule."""
    labels = getattr(getattr(found, "properties", found), "labels", None)
    return dict(_TOLD.findall(found.description)) if labels is None else dict(labels)
