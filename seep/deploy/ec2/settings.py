"""The section `ec2:` of a cluster file."""

from __future__ import annotations

from pydantic import Field, field_validator

from seep.deploy.settings import ClusterSettings
from vmpool.aws.names import CLUSTER, ROLE, VM
from vmpool.aws.settings import AwsAccess

_OURS = {"Name", CLUSTER, ROLE, VM}


class Ec2Settings(AwsAccess, ClusterSettings):
    """The settings of a cluster in EC2."""

    image: str | None = Field(
        None, pattern=r"^ami-[0-9a-f]+$", description="The image (AMI) of all instances; see image_parameter if none."
    )
    image_parameter: str = Field(
        "/aws/service/debian/release/12/latest/amd64",
        pattern=r"^/\S+$",
        description="Public parameter of Systems Manager that names the image when the templates are made.",
    )
    key_name: str | None = Field(None, description="Key pair for SSH; none: no SSH.")
    subnet: str | None = Field(
        None, description="Subnet of all instances; if none, one of the region's default VPC that EC2 chooses."
    )
    volume_gb: int = Field(20, ge=8, le=16_384, description="Size of each root volume, in GiB; it is encrypted.")

    @field_validator("tags")
    @classmethod
    def _are_not_ours(cls, tags: dict[str, str]) -> dict[str, str]:
        if taken := sorted(key for key in tags if key in _OURS or key.startswith("aws:")):
            raise ValueError(f"{', '.join(taken)} cannot be chosen: seep and AWS set these themselves")
        return tags

    def machine_type(self, role: str) -> str:
        """Returns the machine type of the master or of workers."""
        return getattr(self.machines, role) or "m6i.large"
