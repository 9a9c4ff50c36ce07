"""Names and labels of a cluster's resources in Google Cloud, which distinguish them from all others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

#: Labels of resources. A resource without the first is never changed.
CLUSTER = "seep-cluster"
ROLE = "seep-role"  #: master or worker
SETTINGS = "seep-settings"  #: a digest of the settings that it was made from
RUN = "seep-run"  #: the run whose pool started it
VM = "seep-vm"  #: the pool's name for it

#: Metadata keys of a VM for its start-up script, and the guest attribute in which that reports.
CORES = "seep-cores"
STATE = "seep/state"

#: Longest name, and longest value of a label.
LONGEST = 63
_DIGEST = 8
_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_TOLD = re.compile(r"([a-z0-9-]+)=([a-z0-9_-]*)")


def named(cluster: str, part: str) -> str:
    """Returns the name of a cluster's resource; if too long, or not of `a-z0-9-`, it is cut and ends in a digest.

    >>> named("demo", "worker-1"), named("demo", "run 7")
    ('seep-demo-worker-1', 'seep-demo-run-7-04ee2979')
    """
    prefix = f"seep-{cluster}-"
    return prefix + plain(part, LONGEST - len(prefix))


def plain(text: str, longest: int = LONGEST) -> str:
    """Returns `text` in `a-z0-9-`: unchanged if possible, otherwise made unique by a digest."""
    if _PLAIN.fullmatch(text) and len(text) <= longest:
        return text
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower())[: longest - _DIGEST - 1].strip("-")
    return f"{kept}-{digest(text)}".removeprefix("-")


def digest(text: str) -> str:
    """Returns eight characters that differ for different texts.

    >>> digest("a"), digest("b")
    ('ca978112', '3e23e816')
    """
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def described(labels: Mapping[str, str]) -> str:
    """Returns labels as a description, for resources that cannot have labels: firewall rules.

    >>> described({"seep-cluster": "demo", "team": "streams"})
    'seep-cluster=demo, team=streams'
    """
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def labels_of(found: Any) -> dict[str, str]:
    """Returns the labels of an instance, of a template's instances, or in the description of a rule."""
    labels = getattr(getattr(found, "properties", found), "labels", None)
    return dict(_TOLD.findall(found.description)) if labels is None else dict(labels)
