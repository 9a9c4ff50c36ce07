"""Recoveries in progress: from the loss of a node until the sinks are past the epochs open at the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from policies.observation import Change
from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.events import Rebound, Retired
from seep.record.events import InstanceRecovered
from seep.record.ring import Ring

#: The most killed nodes that are not given up yet.
_KILLED = 1000
#: The most ended recoveries that are kept for policies, and the most open ones.
_REMEMBERED = 720


@dataclass(slots=True)
class _Recovery:
    """The instances of a lost node, and the progress of their recovery."""

    node: str
    lost: float  #: when the node was given up
    since: float  #: when it died, if known, or else when it was given up
    ticked: int  #: number of epochs that were open or done by then
    waiting: set[InstanceId]  #: instances that are not restored yet
    instances: tuple[InstanceId, ...]
    restored: float | None = None


@dataclass(slots=True)
class Recovered:
    """An ended recovery, with its parts, in seconds."""

    instances: tuple[InstanceId, ...]
    node: str
    total: float
    detected: float
    restored: float
    replayed: float


@dataclass(slots=True)
class Recoveries:
    """Follows all recoveries. It is a pure machine: callers give the time."""

    _open: list[_Recovery] = field(default_factory=list)
    _killed: dict[str, float] = field(default_factory=dict)

    def killed(self, node: str, now: float) -> None:
        """Notes that a node was killed on purpose: its recovery is measured from then."""
        self._killed[node] = now
        while len(self._killed) > _KILLED:  # a node that was dead already is never lost
            del self._killed[next(iter(self._killed))]

    def lost(
        self, node: str, instances: tuple[InstanceId, ...], stateful: set[InstanceId], ticked: int, now: float
    ) -> None:
        """Notes that a node was given up; of its instances the stateful ones have to be restored."""
        since = self._killed.pop(node, now)
        self._open.append(_Recovery(node, now, since, ticked, set(stateful), instances, None if stateful else now))

    def restored(self, instance: InstanceId, now: float) -> None:
        for recovery in self._open:
            recovery.waiting.discard(instance)
            if not recovery.waiting and recovery.restored is None:
                recovery.restored = now

    def committed(self, epoch: int, now: float) -> list[Recovered]:
        """Notes that all sinks have committed an epoch; returns the recoveries that have ended with it."""
        over = [r for r in self._open if r.instances and epoch >= r.ticked]
        self._open = [r for r in self._open if r not in over and r.instances]
        return [_recovered(r, now) for r in over]


def _recovered(recovery: _Recovery, now: float) -> Recovered:
    restored = recovery.restored if recovery.restored is not None else now
    return Recovered(
        recovery.instances,
        recovery.node,
        total=now - recovery.since,
        detected=recovery.lost - recovery.since,
        restored=restored - recovery.lost,
        replayed=now - restored,
    )


class RecoveryChanges:
    """Each recovery as a change since its beginning, so that no policy scales because of a replay. Thread-safe."""

    def __init__(self) -> None:
        self._begun: dict[InstanceId, Rebound] = {}
        self._over = Ring[Change](_REMEMBERED)

    def hear(self, event: Event) -> None:
        """Handles an event of the run; most kinds change nothing."""
        if isinstance(event, Rebound):
            self._begun.setdefault(event.subject, event)
        elif isinstance(event, InstanceRecovered) and (first := self._begun.pop(event.subject, None)):
            self._over.append(Change(first.operator, first.at, 1, 1, event.at))
        elif isinstance(event, Retired):
            self._begun.pop(event.subject, None)

    def __iter__(self) -> Iterator[Change]:
        """Yields the newest ended changes, and all open ones."""
        yield from self._over
        for first in list(self._begun.values()):
            yield Change(first.operator, first.at, 1, 1)
