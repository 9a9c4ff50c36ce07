"""Settings of Google Cloud: project and zone, and what the pool's VMs are made from."""

from __future__ import annotations

from pydantic import Field

from formats.settings import Seconds, Section


class GceAccess(Section):
    """The project and zone in Google Cloud, and the patience for its answers."""

    project: str = Field(pattern=r"^[a-z0-9.:-]+$", description="The project's id.")
    zone: str = Field("europe-west1-b", pattern=r"^[a-z0-9-]+$", description="The zone of all VMs.")
    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/]+$",
        description="Address of another Compute API, for tests and emulators; to http:// no credentials are sent.",
    )
    patience: Seconds = Field(60.0, description="How long a call is made again that the network or a busy API failed.")
    timeout: Seconds = Field(600.0, description="How long one change, such as a new VM, may take.")


class GceSettings(GceAccess):
    """The provider `gce` of a pool."""

    cluster: str = Field("seep", description="Name of the cluster whose workers' template VMs are made from.")
    ready: Seconds = Field(600.0, description="How long a new VM may take until it has joined the Spark master.")
    poll: Seconds = Field(2.0, description="Time between two looks at a VM that starts.")
