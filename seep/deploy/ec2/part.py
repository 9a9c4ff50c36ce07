"""Parts of a cluster in EC2; a part that is half made or outdated can be completed or removed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from primitives.errors import UserError
from seep.deploy.ec2.settings import Ec2Settings
from vmpool.aws.client import Aws
from vmpool.aws.names import CLUSTER, tags


@dataclass(frozen=True)
class Site:
    """The account and the settings of a cluster."""

    aws: Aws
    settings: Ec2Settings

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self.settings.name

    @cached_property
    def vpc(self) -> str:
        """The VPC of the subnet, or the region's default; requested once."""
        about = f"network of cluster {self.cluster}"
        if self.settings.subnet:
            found = self.aws.items("ec2", "describe_subnets", about, "Subnets", SubnetIds=[self.settings.subnet])
        else:
            default = [{"Name": "is-default", "Values": ["true"]}]
            found = self.aws.items("ec2", "describe_vpcs", about, "Vpcs", Filters=default)
        if not found:
            raise UserError(f"{about}: region {self.aws.region} has no default VPC; set subnet")
        return str(found[0]["VpcId"])

    def tags(self, role: str, name: str) -> dict[str, str]:
        """Returns the tags of a part."""
        return tags(self.cluster, role, name, self.settings.tags)

    def check_ours(self, found: Mapping[str, str], label: str) -> None:
        """Raises UserError for a resource with our name but without our tag, which is never changed."""
        if found.get(CLUSTER) != self.cluster:
            raise UserError(
                f"{label} is there already, without the tag {CLUSTER}={self.cluster}: it is not of this cluster; "
                "choose another name for the cluster, or remove it yourself"
            )


@dataclass(frozen=True, slots=True)
class CloudPart(ABC):
    """A resource in the cloud, such as a role or a template, which may be half made."""

    site: Site

    @property
    @abstractmethod
    def label(self) -> str:
        """The resource's description for users."""

    @abstractmethod
    def find(self) -> str | None:
        """Returns its id if it exists and fits the settings."""

    def left(self) -> str | None:
        """Returns its id if any of it exists."""
        return self.find()

    @abstractmethod
    def create(self) -> str:
        """Makes or completes it, and returns its id."""

    @abstractmethod
    def delete(self) -> None:
        """Removes all of it, and waits until it does not exist any more."""
