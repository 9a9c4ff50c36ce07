"""The cluster file of Google Cloud: the settings of config/gcp.yaml."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from seep.deploy.settings import ClusterSettings
from vmpool.gcp.settings import GceAccess

_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def _fit_for_labels(tags: dict[str, str]) -> dict[str, str]:
    for key, value in tags.items():
        if key.startswith("seep-"):
            raise ValueError(f"{key} is a label of seep's own; choose another")
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            raise ValueError(
                f"{key}={value} is no label of Google Cloud: at most 63 of a-z, 0-9, _ and -, a letter first"
            )
    return tags


class GcpSettings(ClusterSettings, GceAccess):
    """A cluster in Google Cloud."""

    tags: Annotated[dict[str, str], AfterValidator(_fit_for_labels)] = Field(
        default_factory=dict, description="More labels for templates and VMs, and for the description of rules."
    )
    network: str = Field("default", description="The VPC network of all VMs; it is used, never made or removed.")
    subnetwork: str | None = Field(None, description="Its subnet in the zone's region; the network's own if none.")
    external_ip: bool = Field(
        True,
        description="Whether VMs have an address outside; without, they install by way of your Cloud NAT or mirror.",
    )
    image_project: str = Field("debian-cloud", description="Project of the image.")
    image: str = Field(
        "family/debian-12", description="The image, or family/ and the family of which the newest is taken."
    )
    disk_gb: int = Field(20, ge=10, description="Size of each boot disk, in GB.")
    disk_type: str = Field("pd-balanced", description="Type of the boot disks.")
    service_account: str | None = Field(
        None,
        description="E-mail of the account with which the master may start and end workers; "
        "none: no VM has any credentials. Workers never do.",
    )

    @model_validator(mode="after")
    def _can_scale(self) -> Self:
        if self.machines.workers > self.machines.most:
            raise ValueError(f"machines.workers is {self.machines.workers}, and machines.most {self.machines.most}")
        return self

    def machine_type(self, role: str) -> str:
        """Returns the machine type of `master` or `worker`."""
        return {"master": self.machines.master, "worker": self.machines.worker}[role] or "e2-standard-2"
