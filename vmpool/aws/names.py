"""Names and tags of everything that belongs to a cluster, by which it is found again; nothing else is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The cluster's name; what does not have it is not ours.
CLUSTER = "seep:cluster"
#: master or worker.
ROLE = "seep:role"
#: The name of a VM, unique in its cluster.
VM = "seep:vm"

MASTER = "master"
WORKER = "worker"


def template_name(cluster: str, role: str) -> str:
    """The launch template for instances of a role.

    >>> template_name("demo", WORKER)
    'seep-demo-worker'
    """
    return f"seep-{cluster}-{role}"


def tags(cluster: str, role: str, name: str, more: Mapping[str, str]) -> dict[str, str]:
    """The tags of one thing; ours go before the user's."""
    return {**more, "Name": name, CLUSTER: cluster, ROLE: role}


def tag_list(of: Mapping[str, str]) -> list[dict[str, str]]:
    """The tags in the form of Amazon's requests."""
    return [{"Key": key, "Value": value} for key, value in of.items()]


def tags_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """The tags in an answer of Amazon, as a mapping."""
    return {each["Key"]: each["Value"] for each in thing.get("Tags") or ()}
