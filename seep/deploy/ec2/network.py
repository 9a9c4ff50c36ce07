"""Network: a security group whose members can reach each other, and which only `admin` can reach from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from seep.deploy.ec2.part import CloudPart
from vmpool.aws.names import tag_list, tags_of

#: A rule: protocol, first and last port, and the group or address range that it lets in.
Rule = tuple[str, int | None, int | None, str]


@dataclass(frozen=True, slots=True)
class SecurityGroup(CloudPart):
    """The group, with exactly the rules of the settings."""

    @property
    def name(self) -> str:
        """The name of the group, in its VPC."""
        return f"seep-{self.site.cluster}"

    @property
    def label(self) -> str:
        return f"security group {self.name}"

    def find(self) -> str | None:
        group = self._get()
        return str(group["GroupId"]) if group and self._rules(group) == self._wanted(group["GroupId"]) else None

    def left(self) -> str | None:
        group = self._get()
        return str(group["GroupId"]) if group else None

    def create(self) -> str:
        group = self.left() or self._make()
        there, wanted = self._rules(self._get() or {}), self._wanted(group)
        self._change("revoke_security_group_ingress", group, there - wanted)
        self._change("authorize_security_group_ingress", group, wanted - there)
        return group

    def delete(self) -> None:
        """Deletes the group; interfaces of instances that have just ended may still use it for some seconds."""
        gone = ("InvalidGroup.NotFound",)
        self.site.aws.call(
            "ec2",
            "delete_security_group",
            self.label,
            absent=gone,
            retry="DependencyViolation",
            GroupId=self.left(),
        )

    def _make(self) -> str:
        tags = tag_list(self.site.tags("network", self.name))
        answer = self.site.aws.call(
            "ec2",
            "create_security_group",
            self.label,
            GroupName=self.name,
            Description=f"Members of the seep cluster {self.site.cluster}",
            VpcId=self.site.vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
        )
        return str(answer["GroupId"])

    def _get(self) -> Any:
        filters = [{"Name": "group-name", "Values": [self.name]}, {"Name": "vpc-id", "Values": [self.site.vpc]}]
        found = self.site.aws.items("ec2", "describe_security_groups", self.label, "SecurityGroups", Filters=filters)
        for group in found:
            self.site.check_ours(tags_of(group), self.label)
        return found[0] if found else None

    def _wanted(self, group: str) -> set[Rule]:
        settings = self.site.settings
        ports = settings.admin_ports if settings.admin else []
        return {("-1", None, None, group), *(("tcp", port, port, str(settings.admin)) for port in ports)}

    def _rules(self, group: Any) -> set[Rule]:
        return {
            (each["IpProtocol"], each.get("FromPort"), each.get("ToPort"), source)
            for each in group.get("IpPermissions", ())
            for source in _sources(each)
        }

    def _change(self, action: str, group: str, rules: set[Rule]) -> None:
        if rules:
            permissions = [_permission(rule) for rule in sorted(rules, key=str)]
            self.site.aws.call("ec2", action, f"rules of {self.label}", GroupId=group, IpPermissions=permissions)


def _sources(permission: Any) -> Iterable[str]:
    yield from (each["GroupId"] for each in permission.get("UserIdGroupPairs", ()))
    yield from (each["CidrIp"] for each in permission.get("IpRanges", ()))
    yield from (each["CidrIpv6"] for each in permission.get("Ipv6Ranges", ()))


def _permission(rule: Rule) -> dict[str, Any]:
    protocol, first, last, source = rule
    ports = {} if first is None else {"FromPort": first, "ToPort": last}
    return {"IpProtocol": protocol, **ports, **_source(source)}


def _source(source: str) -> dict[str, Any]:
    if source.startswith("sg-"):
        return {"UserIdGroupPairs": [{"GroupId": source}]}
    return {"Ipv6Ranges": [{"CidrIpv6": source}]} if ":" in source else {"IpRanges": [{"CidrIp": source}]}
