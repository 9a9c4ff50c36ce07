"""Names and tags of everything in a cluster, by which it is found; nothing else is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The tag with the cluster's name; resources without it are never changed.
CLUSTER = "seep:cluster"
#: The tag with the role: master or worker.
ROLE = "seep:role"
#: The tag with the name of a VM, unique in its cluster.
VM = "seep:vm"

MASTER = "master"
WORKER = "worker"


def template_name(cluster: str, role: str) -> str:
    """Returns the name of the launch template for a role's instances.

    >>> template_name("demo", WORKER)
    'seep-demo-worker'
    """
    return f"seep-{cluster}-{role}"


def tags(cluster: str, role: str, name: str, more: Mapping[str, str]) -> dict[str, str]:
    """Returns the tags of a resource; ours override the user's."""
    return {**more, "Name": name, CLUSTER: cluster, ROLE: role}


def tag_list(of: Mapping[str, str]) -> list[dict[str, str]]:
    """Converts tags to the form of Amazon's requests."""
    return [{"Key": key, "Value": value} for key, value in of.items()]


def tags_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """Returns the tags in an answer of Amazon, as a mapping."""
    return {each["Key"]: each["Value"] for each in thing.get("Tags") or ()}
