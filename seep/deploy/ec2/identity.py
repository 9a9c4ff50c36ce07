"""Identity: the role of the master, with which the pool requests workers, and that of workers, which has no rights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from seep.deploy.ec2.part import CloudPart
from seep.deploy.forms import read_form
from seep.shipped import shipped
from vmpool.aws.names import MASTER, WORKER, tag_list, tags_of

_POLICY = shipped("deploy") / "ec2" / "policy.json"
_POLICY_NAME = "seep-pool"
_FOR_INSTANCES = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def role_name(cluster: str, region: str, role: str) -> str:
    """Returns the name of a role and of its instance profile, with the region, because roles are global.

    >>> role_name("demo", "eu-west-1", "worker")
    'seep-demo-eu-west-1-worker'
    """
    return f"seep-{cluster}-{region}-{role}"


@dataclass(frozen=True, slots=True)
class Identity(CloudPart):
    """A part named after a role."""

    role: str

    @property
    def name(self) -> str:
        """The name in IAM."""
        return role_name(self.site.cluster, self.site.aws.region, self.role)

    def _call(self, action: str, **parameters: Any) -> Any:
        """Calls IAM; returns None if the part does not exist."""
        return self.site.aws.call("iam", action, self.label, absent=("NoSuchEntity",), **parameters)

    def _make(self, action: str, **parameters: Any) -> None:
        self.site.aws.call("iam", action, self.label, **parameters)

    def _tags(self) -> list[dict[str, str]]:
        return tag_list(self.site.tags(self.role, self.name))


@dataclass(frozen=True, slots=True)
class IamRole(Identity):
    """A role, for the master with the policy in policy.json."""

    @property
    def label(self) -> str:
        return f"role {self.name}"

    def find(self) -> str | None:
        there = self.left()
        return there if there and self._policy() == self._wanted_policy() else None

    def left(self) -> str | None:
        answer = self._call("get_role", RoleName=self.name)
        if answer is None:
            return None
        self.site.check_ours(tags_of(answer["Role"]), self.label)
        return str(answer["Role"]["Arn"])

    def create(self) -> str:
        if not self.left():
            trust = json.dumps(_FOR_INSTANCES)
            self._make("create_role", RoleName=self.name, AssumeRolePolicyDocument=trust, Tags=self._tags())
        if wanted := self._wanted_policy():
            document = json.dumps(wanted)
            self._make("put_role_policy", RoleName=self.name, PolicyName=_POLICY_NAME, PolicyDocument=document)
        return self.name

    def delete(self) -> None:
        for policy in self._listed("list_role_policies", "PolicyNames"):
            self._call("delete_role_policy", RoleName=self.name, PolicyName=policy)
        for attached in self._listed("list_attached_role_policies", "AttachedPolicies"):
            self._call("detach_role_policy", RoleName=self.name, PolicyArn=attached["PolicyArn"])
        self._call("delete_role", RoleName=self.name)

    def _listed(self, action: str, key: str) -> list[Any]:
        return self.site.aws.items("iam", action, self.label, key, RoleName=self.name)

    def _policy(self) -> Any:
        answer = self._call("get_role_policy", RoleName=self.name, PolicyName=_POLICY_NAME)
        return answer and answer["PolicyDocument"]

    def _wanted_policy(self) -> Any:
        """Returns the rights of the pool, which runs on the master; None for workers."""
        if self.role != MASTER:
            return None
        region = self.site.aws.region
        worker = role_name(self.site.cluster, region, WORKER)
        form = read_form(_POLICY)
        return json.loads(form.substitute(cluster=self.site.cluster, region=region, worker_role=worker))


@dataclass(frozen=True, slots=True)
class InstanceProfile(Identity):
    """The profile that gives a role to instances."""

    @property
    def label(self) -> str:
        return f"instance profile {self.name}"

    def find(self) -> str | None:
        there = self._get()
        return str(there["Arn"]) if there and self._roles(there) == [self.name] else None

    def left(self) -> str | None:
        there = self._get()
        return str(there["Arn"]) if there else None

    def create(self) -> str:
        if not self.left():
            self._make("create_instance_profile", InstanceProfileName=self.name, Tags=self._tags())
        if not self.find():
            self._make("add_role_to_instance_profile", InstanceProfileName=self.name, RoleName=self.name)
        return self.name

    def delete(self) -> None:
        for role in self._roles(self._get() or {}):
            self._call("remove_role_from_instance_profile", InstanceProfileName=self.name, RoleName=role)
        self._call("delete_instance_profile", InstanceProfileName=self.name)

    def _get(self) -> Any:
        answer = self._call("get_instance_profile", InstanceProfileName=self.name)
        if answer is None:
            return None
        self.site.check_ours(tags_of(answer["InstanceProfile"]), self.label)
        return answer["InstanceProfile"]

    def _roles(self, profile: Any) -> list[str]:
        return [each["RoleName"] for each in profile.get("Roles", ())]
