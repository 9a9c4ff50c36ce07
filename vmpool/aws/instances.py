"""Launches named instances of a cluster once, finds them by their tags, and terminates them by id."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from vmpool.aws.client import Aws
from vmpool.aws.names import CLUSTER, ROLE, VM, tag_list, tags, tags_of, template_name

#: States in which an instance exists, or may again, and costs money or has disks that do.
ALIVE = frozenset({"pending", "running", "stopping", "stopped"})
#: States in which an instance does no work unless it is started.
GOING = frozenset({"shutting-down", "terminated", "stopping", "stopped"})

#: Resources that a launch creates, and tags from the beginning.
_TAGGED = ("instance", "volume", "network-interface")


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """An EC2 instance, as EC2 last described it."""

    id: str
    name: str  #: the VM's name
    role: str
    state: str
    host: str | None  #: internal address


def find_instances(
    aws: Aws, cluster: str, with_tags: Mapping[str, str] = MappingProxyType({}), *, ids: Collection[str] = ()
) -> list[Ec2Instance]:
    """Returns the cluster's instances in any state; EC2 lists ended ones for about an hour."""
    wanted = {CLUSTER: cluster, **with_tags}
    filters: list[dict[str, Any]] = [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]
    if ids:
        filters.append({"Name": "instance-id", "Values": sorted(ids)})
    about = f"instances of cluster {cluster}"
    reservations = aws.items("ec2", "describe_instances", about, "Reservations", Filters=filters)
    return [_instance(each) for reservation in reservations for each in reservation["Instances"]]


def launch(aws: Aws, cluster: str, role: str, name: str, more_tags: Mapping[str, str]) -> Ec2Instance:
    """Returns the VM of this name; starts it from the role's launch template if it does not exist.

    It is first searched by its tags. The client token covers the time in which EC2 does not list a new instance yet. If
    the instance of a token has been terminated since, the next token is used.
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
    """Starts an instance; returns None if this attempt's token belongs to an instance that is gone."""
    return aws.call(
        "ec2",
        "run_instances",
        name,
        absent=("IdempotentInstanceTerminated", "IdempotentParameterMismatch"),
        retry="Invalid IAM Instance Profile",  # a new profile is known everywhere only after some seconds
        MinCount=1,
        MaxCount=1,
        ClientToken=_token(request, attempt),
        **request,
    )


def await_running(aws: Aws, instances: Collection[Ec2Instance]) -> None:
    """Returns when all run. Raises AwsFault if one has ended instead, or it takes too long."""
    if instances:
        about = ", ".join(each.name for each in instances)
        aws.wait("instance_running", about, InstanceIds=[each.id for each in instances])


def terminate(aws: Aws, instances: Collection[Ec2Instance], *, wait: bool) -> None:
    """Terminates all instances at once; ended ones are no error."""
    if not instances:
        return
    about, ids = ", ".join(each.name for each in instances), [each.id for each in instances]
    aws.call("ec2", "terminate_instances", about, InstanceIds=ids)
    if wait:
        aws.wait("instance_terminated", about, InstanceIds=ids)


def _token(request: Mapping[str, Any], attempt: int) -> str:
    """Returns a token that depends on the request alone, so that a repeated request starts only one instance."""
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
