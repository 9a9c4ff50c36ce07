"""Parts: what a cluster in EC2 is made of; each can be half made, or out of date, and is completed or removed then."""

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
    """Where a cluster is, and what it is to be like."""

    aws: Aws
    settings: Ec2Settings

    @property
    def cluster(self) -> str:
        """Its name."""
        return self.settings.name

    @cached_property
    def vpc(self) -> str:
        """The subnet's, or the region's default; looked up once, as each look at the network needs it."""
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
        """Of one of its parts."""
        return tags(self.cluster, role, name, self.settings.tags)

    def check_ours(self, found: Mapping[str, str], label: str) -> None:
        """UserError for what has our name but not our tag: it is somebody else's, and is not touched."""
        if found.get(CLUSTER) != self.cluster:
            raise UserError(
                f"{label} is there already, without the tag {CLUSTER}={self.cluster}: it is not of this cluster; "
                "choose another name for the cluster, or remove it yourself"
            )


@dataclass(frozen=True, slots=True)
class CloudPart(ABC):
    """One thing in the cloud, such as a role or a template; tells a half-made one from one that is as it should be."""

    site: Site

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is, for people."""

    @abstractmethod
    def find(self) -> str | None:
        """Its id if it is there as the settings want it."""

    def left(self) -> str | None:
        """Its id if any of it is there."""
        return self.find()

    @abstractmethod
    def create(self) -> str:
        """Makes or completes it, and returns its id."""

    @abstractmethod
    def delete(self) -> None:
        """Removes all of it, and returns when it is gone."""
