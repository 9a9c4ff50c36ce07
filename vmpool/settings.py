"""Settings of VMs and of the pool that keeps some of them warm."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ByteSize, Field, model_validator

from formats.settings import OptionalSeconds, Seconds, Section


class Sizing(StrEnum):
    """The rule for the number of warm VMs."""

    CONSTANT = "constant"  #: always `size`
    ADAPTIVE = "adaptive"  #: more while VMs are taken quickly, down to the reserve when none are


class Metadata(StrEnum):
    """The service that tells whether a VM is about to be taken away."""

    NONE = "none"
    EC2 = "ec2"  #: the instance metadata service
    GCE = "gce"  #: the metadata server


class VMSettings(Section):
    """Limits of one VM of this run; local nodes enforce them themselves."""

    cpu: float | None = Field(None, gt=0, le=64, description="Cores of each node, such as 0.2; no limit if not given.")
    credit: float = Field(
        0.0, ge=0, description="CPU seconds at its start that a VM with a share has besides, as burstable ones do."
    )
    memory: ByteSize | None = Field(
        None, description="Memory of each node, such as 1GiB, by which a bottleneck of memory is told; none: not told."
    )
    notices: Metadata = Field(
        Metadata.NONE, description="none, ec2 or gce: where nodes ask for the notice that comes before a spot VM goes."
    )
    notices_url: str | None = Field(None, description="Where that service is, if not at its usual address.")
    notices_every: Seconds = Field(5.0, description="Time between two such questions.")


class PoolSettings(Section):
    """Settings of the pool of pre-warmed VMs."""

    provider: str = Field("spark", description="Where VMs come from: spark, standalone, ec2 or gce.")
    settings: dict[str, Any] = Field(default_factory=dict, description="What that provider takes, by keyword.")
    size: int = Field(1, ge=0, description="Warm VMs that are kept (p in SEEP); the least of them when adaptive.")
    sizing: Sizing = Field(Sizing.CONSTANT, description="constant, or adaptive to how fast VMs are taken.")
    max_size: int = Field(8, ge=0, description="Most warm VMs of an adaptive pool.")
    reserve: int = Field(1, ge=0, description="Warm VMs that only recovery may take, never scale-out.")
    nodes_per_vm: int = Field(1, ge=1, description="Nodes on each VM.")
    max_vms: int | None = Field(None, ge=1, description="Most VMs at all, warm and used; no bound if not given.")
    idle: Seconds = Field(60.0, description="Time after which a warm VM that is not needed is given back.")
    retry: Seconds = Field(1.0, description="Time until a failed order is tried again; doubles up to retry_most.")
    retry_most: Seconds = Field(60.0, description="Most time between two tries.")
    provisioning_delay: OptionalSeconds = Field(
        None,
        description="Makes every VM take so much longer, to show what the pool buys; clouds take 90s.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> PoolSettings:
        if self.sizing is Sizing.ADAPTIVE and self.max_size < self.size:
            raise ValueError(f"max_size is {self.max_size}, and size {self.size}")
        return self
