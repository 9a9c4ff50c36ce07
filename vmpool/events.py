"""Events of the pool: changes of its VMs and of its target size."""

from __future__ import annotations

from primitives.event import Event, event, event_base


@event_base
class VMEvent(Event):
    """Something about a VM."""

    vm: str

    @property
    def words(self) -> str:
        """The details in words."""
        return ""

    @property
    def detail(self) -> str:
        return f"{self.vm}: {self.words}"


@event("vm ordered")
class VMOrdered(VMEvent):
    """A VM was ordered from its provider."""

    provider: str

    @property
    def words(self) -> str:
        return f"from provider {self.provider}"


@event("vm ready")
class VMReady(VMEvent):
    """All nodes of a VM have registered; `seconds` since its order."""

    nodes: tuple[str, ...]
    seconds: float

    @property
    def words(self) -> str:
        return f"with {', '.join(self.nodes)}"


@event("vm lost")
class VMLost(VMEvent):
    """A VM is gone; `seconds` since its order."""

    why: str
    seconds: float

    @property
    def words(self) -> str:
        return self.why


@event("vm released")
class VMReleased(VMEvent):
    """A VM was stopped on purpose; `seconds` since its order."""

    why: str
    seconds: float

    @property
    def words(self) -> str:
        return self.why


@event("pool resized")
class PoolResized(Event):
    """The pool keeps another number of warm VMs."""

    before: int
    after: int

    @property
    def detail(self) -> str:
        return f"{self.after} warm VMs are kept, {self.before} were"


@event("pool exhausted")
class PoolExhausted(Event):
    """More VMs are needed than `max_vms` allows."""

    missing: int  #: number of missing VMs
    most: int  #: the limit max_vms
    states: str  #: number of VMs in each state

    @property
    def detail(self) -> str:
        return (
            f"{self.missing} more VMs are needed, and max_vms is {self.most} ({self.states}): "
            "raise pool.max_vms, or lower pool.reserve or the bounds of operators"
        )


@event("provider failed")
class ProviderFailed(Event):
    """The provider of VMs, or Spark, did not fulfil a request."""

    vm: str | None = None  #: None if it concerns no particular VM
    why: str

    @property
    def detail(self) -> str:
        return f"{self.vm}: {self.why}" if self.vm else self.why


PoolEvent = VMOrdered | VMReady | VMLost | VMReleased | PoolResized | PoolExhausted | ProviderFailed
