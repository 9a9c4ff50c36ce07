"""The coordinator: shows policies what happens, and has done what they decide, on a thread of its own."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from policies.decision import Decision
from policies.detector import Bottleneck, Cause, bottlenecks
from policies.governor import Governor
from policies.migration.settings import MigrationSettings
from policies.observation import Change, History, Observation
from policies.settings import ScalingSettings
from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.events import Rebound
from seep.record.events import BottleneckFound, InstanceRecovered, ScalingFailed
from seep.record.ring import Ring
from seep.runtime.balancing import Balancing
from seep.runtime.drains import Drains
from seep.runtime.driver import ManagerProcess
from seep.runtime.failures import place_of
from seep.runtime.migrations import Migrations
from seep.runtime.observer import Observer
from seep.runtime.replicas import Replicas
from seep.runtime.scaling import Scalings, at_once_unless_said
from seep.runtime.waiting import Room, WarmNodes

#: Seconds between two rounds.
_ROUND = 0.05
#: Observations that are remembered, and recoveries.
_REMEMBERED = 720


class VMs(WarmNodes, Protocol):
    """What the coordinator needs of the pool."""

    def leaving(self, node: str) -> None:
        """The VM of a node will go; it is to be ended when nothing is left on it."""
        ...


class RecoveryChanges:
    """Each recovery as a change, from the moment it was begun; a replay is no load to scale for. For any thread."""

    def __init__(self) -> None:
        self._begun: dict[InstanceId, Rebound] = {}
        self._over = Ring[Change](_REMEMBERED)

    def hear(self, event: Event) -> None:
        if isinstance(event, Rebound):
            self._begun.setdefault(event.subject, event)
        elif isinstance(event, InstanceRecovered) and (first := self._begun.pop(event.subject, None)):
            self._over.append(Change(first.operator, first.at, 1, 1, event.at))

    def __iter__(self) -> Iterator[Change]:
        """The newest that are over, and all that are not."""
        yield from self._over
        for first in list(self._begun.values()):
            yield Change(first.operator, first.at, 1, 1)


class Coordinator:
    """Between governor, manager and pool. A policy that is slow or fails holds up nobody but itself."""

    def __init__(
        self,
        process: ManagerProcess,
        governor: Governor,
        settings: ScalingSettings,
        steps: MigrationSettings,
        vms: VMs,
    ) -> None:
        self._process, self._governor, self._settings, self._vms = process, governor, settings, vms
        self._observer = Observer(process.program)
        self._observations: deque[Observation] = deque(maxlen=_REMEMBERED)
        room = Room(vms, process.events)
        self.migrations = Migrations(process, room)
        steps = at_once_unless_said(steps)
        self._scalings = Scalings(process, settings, self.migrations, steps, room)
        self._drains = Drains(process, self.migrations, steps)
        balance = process.options.balance
        self.balancing = Balancing(process, balance, self.migrations, steps, lambda: self.history.changes)
        self._replicas = Replicas(process, process.options.backup)
        self._known: set[tuple[InstanceId, Cause]] = set()  #: bottlenecks that were told
        self._complaints: set[tuple[str, str, int]] = set()  #: where what failed was told
        self._recoveries = RecoveryChanges()
        process.events.listen(self._recoveries.hear)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seep coordinator", daemon=True)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._replicas.place()  # before there is anything to be kept
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self.migrations.end()
        self._scalings.end()

    def scale(self, operator: str, parallelism: int) -> None:
        """As if a policy had decided it; policies that decide otherwise wait until it is done."""
        self._scalings.open(Decision(operator, parallelism, "asked for"), by_hand=True)

    def drain(self, node: str) -> None:
        """Moves all that lives on a node elsewhere, and has its VM ended then."""
        self._drains.begin(node)
        self._vms.leaving(node)

    @property
    def history(self) -> History:
        """What policies are shown."""
        found = (*self._scalings.changes, *self.migrations.changes, *self._recoveries)
        changes = sorted(found, key=lambda change: change.begun)
        return History(self._process.program.graph, tuple(self._observations), tuple(changes))

    @property
    def offered(self) -> float:
        """Rows per second that were due at all sources in the last report interval."""
        latest = tuple(self._observations)[-1:]
        return sum(sum(observation.offered.values()) for observation in latest)

    # -- its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        look = time.monotonic()
        while not self._over.wait(_ROUND) and not self._process.ended.is_set():
            if time.monotonic() >= look:
                look = max(look + self._settings.detector.report, time.monotonic())
                self._tolerate(self._look)
            self._tolerate(self._scalings.round)
            self._tolerate(self._drains.round)
            self._tolerate(self.migrations.round)
            self._tolerate(self._replicas.round)
            self._tolerate(self.balancing.round)

    def _tolerate(self, step: Callable[[], None]) -> None:
        """Rather a query that is not scaled than none; each failure is told once, by where it comes from."""
        try:
            step()
        except Exception as reason:
            place = place_of(reason)
            if place not in self._complaints and not self._process.ended.is_set():
                self._complaints.add(place)
                text = f"{type(reason).__name__}: {reason}\n{traceback.format_exc()}"
                self._process.events.add(ScalingFailed(why=text))

    def _look(self) -> None:
        """One report interval is over."""
        observation = self._observer.observe(self._process.sight(len(self._vms.available())))
        if observation is None:
            return
        self._observations.append(observation)
        history = self.history
        self._tell(bottlenecks(history, self._settings.detector))
        for decision in self._governor.decide(history):
            self._scalings.open(decision)

    def _tell(self, found: list[Bottleneck]) -> None:
        """Of each bottleneck when it becomes one."""
        known, self._known = self._known, {(each.instance, each.cause) for each in found}
        for each in found:
            if (each.instance, each.cause) not in known:
                found_now = BottleneckFound(subject=each.instance, cause=each.cause, why=each.why)
                self._process.events.add(found_now)
