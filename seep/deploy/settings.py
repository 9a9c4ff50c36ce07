"""The cluster file: the settings of config/ec2.yaml and config/gcp.yaml, checked field by field."""

from __future__ import annotations

from ipaddress import ip_network

from pydantic import Field, field_validator

from formats.settings import Section


class Machines(Section):
    """The VMs of a cluster."""

    master: str | None = Field(None, description="Machine type of the Spark master; the provider default if none.")
    worker: str | None = Field(None, description="Machine type of workers; the provider default if none.")
    workers: int = Field(2, ge=0, description="Workers that `up` starts; the pool starts more.")
    most: int = Field(20, ge=0, description="Most workers that `scale` and the pool may ask for.")
    spot: bool = Field(False, description="Workers on spot or preemptible capacity; their notices become handovers.")
    nodes_per_worker: int = Field(1, ge=1, description="Nodes on each worker: its Spark cores.")


class ClusterSettings(Section):
    """The settings that both providers share; their sections extend it."""

    name: str = Field(
        "seep", pattern=r"^[a-z][a-z0-9-]{0,30}$", description="The cluster's name, on every tag and label."
    )
    machines: Machines = Field(Machines(), description="How many VMs of which kind.")
    admin: str | None = Field(
        None, description="Address range, such as 203.0.113.7/32, that may reach the master and SSH; none: nobody."
    )
    admin_ports: list[int] = Field(
        [22, 4040, 8080, 8081], description="What `admin` may reach: SSH, and the pages of Spark."
    )
    tags: dict[str, str] = Field(default_factory=dict, description="More tags or labels for everything.")
    environment: str = Field("requirements.lock", description="File with the pinned Python environment of the VMs.")
    hourly: dict[str, float] = Field(
        default_factory=dict, description="Dollars per hour by machine type, for the plan; none are built in."
    )

    @field_validator("admin")
    @classmethod
    def _is_a_range(cls, admin: str | None) -> str | None:
        """Refuses the whole internet, because Spark's pages have no password."""
        if admin is None:
            return None
        addresses = ip_network(admin)
        if addresses.prefixlen == 0:
            raise ValueError("that is everybody; name the addresses you come from, such as 203.0.113.7/32")
        return str(addresses)
