"""Events of a run besides those of the protocol and the pool: begin and end, decisions and their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from policies.scaling.detector import Cause
from primitives.event import (
    Event,
    InstanceEvent,
    NodeEvent,
    OperatorEvent,
    RunEvent,
    event,
    event_base,
)
from primitives.graph import InstanceId

# -- nodes -------------------------------------------------------------------------------------------------------------


@event("node joined")
class NodeJoined(NodeEvent):
    """A node is there, and can host instances."""


@event("notice")
class NodeNotice(Event):
    """A node has notice that its VM will be taken away."""

    node: str
    left: float  #: seconds until then

    @property
    def detail(self) -> str:
        return f"its VM will be taken away in {self.left:.0f} s"


@event("drained")
class Drained(NodeEvent):
    """A node that was being drained is empty."""


@event("drain given up")
class DrainGivenUp(NodeEvent):
    """A node could not be emptied, and its drain is over."""


@event("killed")
class NodeKilled(Event):
    """A node was killed on purpose."""

    node: str
    hosted: tuple[InstanceId, ...] = ()  #: instances that it hosted

    @property
    def detail(self) -> str:
        return f"with {', '.join(map(str, self.hosted)) or 'nothing'}"


@event("stopped")
class NodeStopped(NodeEvent):
    """A node was frozen on purpose."""


@event("continued")
class NodeContinued(NodeEvent):
    """A frozen node continues."""


@event("strike failed")
class StrikeFailed(Event):
    """A strike of `--chaos` could not be dealt."""

    strike: str
    why: str

    @property
    def detail(self) -> str:
        return f"{self.strike}: {self.why}"


@event("refused message")
class RefusedMessage(Event):
    """A process has sent an invalid message."""

    node: str | None = None  #: the node that has refused it; None: the driver
    sender: str
    why: str

    @property
    def detail(self) -> str:
        return f"from {self.sender}: {self.why}"


# -- the run -----------------------------------------------------------------------------------------------------------


@event("finished")
class RunFinished(RunEvent):
    """All input is processed and committed."""


@event("halted")
class RunHalted(RunEvent):
    """The run was stopped before the end of its input."""


@event("failed")
class RunFailed(RunEvent):
    """The run cannot continue."""


@event("recovered")
class InstanceRecovered(InstanceEvent):
    """The query is where it would be without the loss of this instance's node."""

    seconds: float
    detected: float  #: seconds until the node was given up
    restored: float  #: seconds until all its instances had their state again
    replayed: float  #: seconds until all sinks were past the epochs open at the loss
    lost: str = ""  #: the lost node

    @property
    def parts(self) -> Mapping[str, float]:
        return {"detected": self.detected, "restored": self.restored, "replayed": self.replayed}


# -- scaling -----------------------------------------------------------------------------------------------------------


@event("bottleneck")
class BottleneckFound(InstanceEvent):
    """An instance holds up the query, or soon will."""

    cause: Cause
    why: str

    @property
    def detail(self) -> str:
        return f"{self.cause}: {self.why}"


@event("waiting for VMs")
class WaitingForVMs(Event):
    """A change waits for nodes that are on their way."""

    operator: str
    needed: int  #: nodes
    why: str  #: what the nodes are needed for

    @property
    def detail(self) -> str:
        return f"{self.needed} needed: {self.why}"


@event_base
class ScalingBegun(Event):
    """The slots of an operator begin to move to another number of instances."""

    operator: str
    before: int  #: instances
    after: int  #: instances that there should be
    why: str

    @property
    def detail(self) -> str:
        return f"{self.before} → {self.after}: {self.why}"


@event("scaling out")
class ScalingOut(ScalingBegun):
    """A decision for more instances is carried out."""


@event("scaling in")
class ScalingIn(ScalingBegun):
    """A decision for fewer instances is carried out."""


@event_base
class ScalingDone(Event):
    """An operator has another number of instances."""

    operator: str
    before: int  #: instances
    after: int
    seconds: float  #: while slots moved
    waited: float  #: seconds before that, since it was decided
    latency_peak: float  #: highest latency of an epoch meanwhile, in seconds
    why: str = ""  #: the reason given with the decision

    @property
    def detail(self) -> str:
        return f"{self.before} → {self.after}, latency up to {self.latency_peak:.3f} s"

    @property
    def parts(self) -> Mapping[str, float]:
        return {"waited": self.waited}

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"before": self.before, "after": self.after, "latency_peak": self.latency_peak}


@event("scaled out")
class ScaledOut(ScalingDone):
    """A decision for more instances was carried out."""


@event("scaled in")
class ScaledIn(ScalingDone):
    """A decision for fewer instances was carried out."""


@event("scaling aborted")
class ScalingAborted(OperatorEvent):
    """A decision could not be carried out; it is tried again."""


@event("scaling replaced")
class ScalingReplaced(OperatorEvent):
    """Another decision has replaced one that had not begun."""


@event("nothing to scale")
class NothingToScale(OperatorEvent):
    """An operator has the wanted number of instances already."""


@event("split not possible")
class SplitNotPossible(OperatorEvent):
    """A backup cannot be split; its owners hand slots over instead."""

    @property
    def detail(self) -> str:
        return f"{self.why}; its owners hand slots over instead"


@event("scaling refused")
class ScalingRefused(OperatorEvent):
    """A decision cannot be carried out."""

    #: the number of instances to which another decision, which goes on, scales the operator
    meanwhile: int | None = None


@event("scaling called off")
class ScalingCalledOff(OperatorEvent):
    """A decision has ended before anything had moved."""


@event("scaling given up")
class ScalingGivenUp(OperatorEvent):
    """A decision made no progress for too long."""


@event("scaling failed")
class ScalingFailed(RunEvent):
    """A policy, or the code that carries out decisions, has an error; the run continues."""


@event("policy slow")
class PolicySlow(Event):
    """A policy is slow to decide, and is not consulted again until it has decided."""

    policy: str
    seconds: float

    @property
    def detail(self) -> str:
        return f"policy {self.policy} has not decided yet, and is not asked again until it has"


# -- migrations --------------------------------------------------------------------------------------------------------


@event("migration begun")
class MigrationBegun(Event):
    """Slots of an operator begin to move in steps."""

    operator: str
    strategy: str
    slots: int
    steps: int
    why: str
    migration: int | None = None  #: its number

    @property
    def detail(self) -> str:
        return f"{self.strategy}, {self.slots:,} slots in {self.steps:,} steps: {self.why}"


@event_base
class MigrationOver(Event):
    """A migration has ended, and how far it had come."""

    operator: str
    seconds: float | None = None  #: since it began; None if it has not
    why: str = ""  #: why it ended, unless all slots have moved
    steps: int = 0
    steps_done: int = 0  #: steps that have taken effect
    slots_moved: int = 0
    slots_remaining: int = 0
    bytes: int = 0  #: handed over between two epochs, as far as nodes have reported
    bytes_ahead: int = 0  #: bytes of prefetched backups
    held_back: int = 0  #: rows that waited for the state of their slots
    waited: float | None = None  #: seconds until it began
    moved: float | None = None  #: seconds while slots moved
    settled: float | None = None  #: seconds until all was backed up
    latency: Mapping[str, float] = field(default_factory=dict)  #: p50, p95, p99 and max meanwhile
    migration: int | None = None  #: its number

    @property
    def detail(self) -> str:
        return f"{self.moved_words}: {self.why}"

    @property
    def moved_words(self) -> str:
        """Returns the progress in words."""
        slots = self.slots_moved + self.slots_remaining
        return f"{self.slots_moved:,} of {slots:,} slots in {self.steps_done:,} steps"

    @property
    def parts(self) -> Mapping[str, float]:
        parts = {"waited": self.waited, "moved": self.moved, "settled": self.settled}
        return {name: seconds for name, seconds in parts.items() if seconds is not None}

    @property
    def numbers(self) -> Mapping[str, float]:
        figures = ("steps", "steps_done", "slots_moved", "slots_remaining", "bytes", "bytes_ahead", "held_back")
        latency = {f"latency_{name}": seconds for name, seconds in self.latency.items()}
        return {name: getattr(self, name) for name in figures} | latency


@event("migrated")
class Migrated(MigrationOver):
    """All slots of a migration have moved, and are backed up."""

    @property
    def detail(self) -> str:
        handed = f"{self.bytes:,} bytes handed over, {self.held_back:,} rows held back"
        latency = f", latency up to {self.latency['max']:.3f} s" if self.latency else ""
        return f"{self.moved_words}, {handed}{latency}"


@event("migration cancelled")
class MigrationCancelled(MigrationOver):
    """No further step of a migration is announced; moved slots stay where they are."""


@event("migration refused")
class MigrationRefused(MigrationOver):
    """A migration cannot be carried out."""


# -- balance and backups -----------------------------------------------------------------------------------------------


@event("balancing")
class BalancingBegun(OperatorEvent):
    """Slots are moved away from full instances."""

    imbalance: float  #: load of the fullest instance over the mean
    slots: int  #: number of slots to move

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"imbalance": self.imbalance, "slots": self.slots}


@event("balanced")
class Balanced(Event):
    """Slots were moved away from full instances, with the result."""

    operator: str
    seconds: float
    before: float  #: load of the fullest instance over the mean before
    after: float
    slots: int  #: number of slots that have moved
    bytes: int  #: bytes handed over

    @property
    def detail(self) -> str:
        return f"the fullest instance had {self.before:.2f} times the mean, now {self.after:.2f}"

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"before": self.before, "after": self.after, "slots": self.slots, "bytes": self.bytes}


@event("balancing called off")
class BalancingCalledOff(OperatorEvent):
    """A rebalance was not carried out."""


@event("nothing to balance")
class NothingToBalance(OperatorEvent):
    """The load is even enough, though balance was requested."""


@event("hot slot")
class HotSlot(InstanceEvent):
    """One key is too heavy for any balance."""

    slot: int
    share: float  #: fraction of the instance's load
    why: str

    @property
    def detail(self) -> str:
        return self.why

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"slot": self.slot, "share": self.share}


@event("balancing failed")
class BalancingFailed(OperatorEvent):
    """The balancer has an error, or is too slow."""


@event("replicas placed")
class ReplicasPlaced(Event):
    """The holders of backups from now on."""

    groups: Mapping[InstanceId, tuple[str, ...]]

    @property
    def detail(self) -> str:
        return "; ".join(f"{owner} on {', '.join(group)}" for owner, group in sorted(self.groups.items()))


# -- checkpoints in storage --------------------------------------------------------------------------------------------


@event("resumed")
class RunResumed(Event):
    """The run continues from a checkpoint in storage."""

    id: int
    epoch: int
    passed_over: tuple[int, ...] = ()  #: later checkpoints that were skipped

    @property
    def detail(self) -> str:
        later = f", not from {', '.join(map(str, self.passed_over))}" if self.passed_over else ""
        return f"from checkpoint {self.id} at epoch {self.epoch}{later}"

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"id": self.id, "epoch": self.epoch}


@event_base
class CheckpointStored(Event):
    """A checkpoint is complete in storage."""

    id: int
    epoch: int
    seconds: float
    bytes: int = 0  #: bytes of state, with the checkpoints that it builds on

    @property
    def detail(self) -> str:
        return f"checkpoint {self.id} at epoch {self.epoch}"

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"id": self.id, "epoch": self.epoch, "bytes": self.bytes}


@event("persisted")
class CheckpointPersisted(CheckpointStored):
    """A checkpoint is complete in storage."""


@event("savepoint")
class SavepointStored(CheckpointStored):
    """A savepoint that was requested is complete in storage."""


@event("checkpoint failed")
class CheckpointFailed(RunEvent):
    """A checkpoint could not be stored; the next one is tried."""


@event("cleaning failed")
class CleaningFailed(RunEvent):
    """Old checkpoints could not be removed; it is tried again after the next one."""


@event("compacted")
class Compacted(Event):
    """Chains of increments were merged in storage, as another checkpoint of the same epoch."""

    id: int
    operators: tuple[str, ...]
    origin: int  #: the checkpoint that was merged
    seconds: float

    @property
    def detail(self) -> str:
        return f"checkpoint {self.id}: {', '.join(self.operators)} in full, from checkpoint {self.origin}"


@event("compaction failed")
class CompactionFailed(RunEvent):
    """Chains of increments could not be merged; the next checkpoint is a full one."""
