"""Launches instances of a cluster once by name, finds them by their tags, and terminates them by id."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from vmpool.aws.client import Aws
from vmpool.aws.names import CLUSTER, ROLE, VM, tag_list, tags, tags_of, template_name

#: States in which an instance is there, or may be again, and costs money or has disks that do.
ALIVE = frozenset({"pending", "running", "stopping", "stopped"})
#: Those that will do no work by themselves.
GOING = frozenset({"shutting-down", "terminated", "stopping", "stopped"})

#: What a launch makes, and tags from the first moment on.
_TAGGED = ("instance", "volume", "network-interface")


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """An EC2 instance, as EC2 last described it."""

    id: str
    name: str  #: of the VM
    role: str
    state: str
    host: str | None  #: its address inside the network


def find_instances(
    aws: Aws, cluster: str, with_tags: Mapping[str, str] = MappingProxyType({}), *, ids: Collection[str] = ()
) -> list[Ec2Instance]:
    """The cluster's instances in any state; EC2 lists ended ones for about an hour."""
    wanted = {CLUSTER: cluster, **with_tags}
    filters: list[dict[str, Any]] = [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]
    if ids:
        filters.append({"Name": "instance-id", "Values": sorted(ids)})
    about = f"instances of cluster {cluster}"
    reservations = aws.items("ec2", "describe_instances", about, "Reservations", Filters=filters)
    return [_instance(each) for reservation in reservations for each in reservation["Instances"]]


def launch(aws: Aws, cluster: str, role: str, name: str, more_tags: Mapping[str, str]) -> Ec2Instance:
    """The VM of this name, started from the role's launch template if it is not there yet.

    It is looked for by its tags first. The client token covers the moments in which EC2 does not show a new instance
    yet; a token whose instance has been terminated since gives way to the next.
    """
    there = [each for each in find_instances(aws, cluster, {ROLE: role, VM: name}) if each.state in ALIVE]
    if there:
        return there[0]
    wanted = tags(cluster, role, f"seep-{cluster}-{name}", more_tags) | {VM: name}
    request = {
        "LaunchTemplate": {"LaunchTemplateName": template_name(cluster, role), "Version": "$Default"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(wanted)} for kind in _TAGGED],
    }
    attempt = 0
    while not (answer := _run(aws, name, request, attempt)):
        attempt += 1
    return _instance(answer["Instances"][0])


def _run(aws: Aws, name: str, request: Mapping[str, Any], attempt: int) -> Any:
    """None if the token of this attempt has been spent on an instance that is gone."""
    return aws.call(
        "ec2",
        "run_instances",
        name,
        absent=("IdempotentInstanceTerminated", "IdempotentParameterMismatch"),
        retry="Invalid IAM Instance Profile",  # a new profile takes some seconds to be known everywhere
        MinCount=1,
        MaxCount=1,
        ClientToken=_token(request, attempt),
        **request,
    )


def await_running(aws: Aws, instances: Collection[Ec2Instance]) -> None:
    """Returns when all run; AwsFault if one has ended instead, or it takes too long."""
    if instances:
        about = ", ".join(each.name for each in instances)
        aws.wait("instance_running", about, InstanceIds=[each.id for each in instances])


def terminate(aws: Aws, instances: Collection[Ec2Instance], *, wait: bool) -> None:
    """Ends them all at once; those that have ended are no error."""
    if not instances:
        return
    about, ids = ", ".join(each.name for each in instances), [each.id for each in instances]
    aws.call("ec2", "terminate_instances", about, InstanceIds=ids)
    if wait:
        aws.wait("instance_terminated", about, InstanceIds=ids)


def _token(request: Mapping[str, Any], attempt: int) -> str:
    """The same for the same request, so that it starts one instance however often it is made."""
    return hashlib.sha256(f"{request}{attempt}".encode()).hexdigest()


def _instance(told: Mapping[str, Any]) -> Ec2Instance:
    known = tags_of(told)
    return Ec2Instance(
        id=told["InstanceId"],
        name=known.get(VM, told["InstanceId"]),
        role=known.get(ROLE, ""),
        state=told["State"]["Name"],
        host=told.get("PrivateIpAddress"),
    )
