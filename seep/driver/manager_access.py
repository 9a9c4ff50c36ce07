"""Access to the manager from other threads of the driver: each query and request has a name and a deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.driver import queries
from seep.protocol.cuts import Cut
from seep.protocol.effects import Effect
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Accepted, Refused
from seep.protocol.manager.replication import BackupCopy
from seep.threads.event_loop import EventLoop, Work, name_of

T = TypeVar("T")

#: Seconds within which the event loop answers; it never blocks, so it is late only without CPU time.
ANSWERED = 30.0


class ManagerAccess:
    """Runs every request on the event loop and waits for the answer; raises EnvironmentFault if that takes too long."""

    _loop: EventLoop
    manager: Manager  #: used on the event loop's thread

    def perform(self, effects: list[Effect]) -> None:
        """Does what the manager asks for; on the event loop."""
        raise NotImplementedError

    def on_loop(self, work: Callable[[], T], timeout: float = ANSWERED) -> T:
        """Runs work on the event loop and returns its result; raises EnvironmentFault if that takes too long."""
        return self._loop.ask(work, timeout)

    def put_on_loop(self, work: Work) -> None:
        """Queues work for the event loop, and does not wait for it."""
        self._loop.put(work)

    def after(self, seconds: float, work: Work) -> None:
        """Runs the work on the event loop once, after `seconds` seconds."""
        self._loop.after(seconds, work)

    def every(self, seconds: float, work: Work) -> None:
        """Runs the work on the event loop at this interval."""
        self._loop.every(seconds, work)

    def ask(self, question: Callable[[Manager], T], timeout: float = ANSWERED) -> T:
        """Asks a question about the manager on the event loop; returns the answer."""
        return self._loop.ask(partial(question, self.manager), timeout)

    def _change(self, change: Callable[[Manager], tuple[T, list[Effect]]]) -> T:
        """Makes a change of the manager, and carries out its effects; returns the answer."""
        return self._loop.ask(partial(self._changed, change), ANSWERED, name_of(change))

    def _changed(self, change: Callable[[Manager], tuple[T, list[Effect]]]) -> T:
        answer, effects = change(self.manager)
        self.perform(effects)
        return answer

    def _do(self, effects_of: Callable[[], list[Effect]]) -> None:
        """Carries out the effects of a request that has no answer."""
        self._loop.ask(partial(self._perform_those_of, effects_of), ANSWERED, name_of(effects_of))

    def _perform_those_of(self, effects_of: Callable[[], list[Effect]]) -> None:
        self.perform(effects_of())

    # -- queries ------------------------------------------------------------------------------------------------------

    def live_nodes(self) -> frozenset[str]:
        return self.ask(queries.live_nodes)

    def staying_nodes(self) -> list[str]:
        """Live nodes that are not about to leave, oldest first."""
        return self.ask(queries.staying_nodes)

    def placement(self) -> dict[InstanceId, str]:
        """Returns the node of each instance."""
        return self.ask(queries.placement)

    def latest_assignment(self, operator: str) -> Assignment:
        """Returns the owners of slots after all announced plans have taken effect."""
        return self.ask(partial(queries.latest_assignment, operator=operator))

    def backup_of(self, owner: InstanceId) -> BackupCopy | None:
        """Returns the backup that an instance would be restored from, if there is one."""
        return self.ask(partial(queries.backup_of, owner=owner))

    def safe_epoch(self, operator: str) -> int:
        """Returns the epoch up to which all instances of the operator are safe."""
        return self.ask(partial(queries.safe_epoch, operator=operator))

    def is_ending(self) -> bool:
        """Whether the input is to end, or has."""
        return self.ask(queries.is_ending)

    def final_epoch(self) -> int | None:
        """Returns the last epoch of the query; None while it is not known."""
        return self.ask(queries.final_epoch)

    def cut_waits_for(self) -> str | None:
        """Describes what the current cut waits for; None if there is no cut."""
        return self.ask(queries.cut_waits_for)

    def cut_outlook(self) -> queries.CutOutlook:
        """Returns the base of the next cut, and the slots that it must contain."""
        return self.ask(queries.cut_outlook)

    def home_of(self, source: str, slot: int) -> str | None:
        """Returns the node of the instance that owns a slot by the latest plan."""
        return self.ask(partial(queries.home_of, source=source, slot=slot))

    def oldest_needed(self, source: str) -> dict[int, Any]:
        """Returns, for each slot, the first position from which an instance may have to read again."""
        return self.ask(partial(queries.oldest_needed, source=source))

    def positions_behind(self, source: InstanceId, sink: InstanceId) -> Mapping[int, Any]:
        """Returns the positions of a source after the last epoch that the sink has committed."""
        return self.ask(partial(queries.positions_behind, source=source, sink=sink))

    # -- requests -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Ends the input; rows that were read are still processed and committed."""
        self._do(self.manager.finish)

    def checkpoint(self, operator: str | None = None) -> None:
        """Asks the stateful instances, of one operator or of all, for a checkpoint now."""
        self._do(partial(self.manager.checkpoint, operator))

    def move(self, operator: str, parts: Mapping[int, SlotSet], first: int | None = None) -> Accepted | Refused:
        """Hands slots over to instances, by index: one plan, effective at `first` or soon."""
        return self._change(partial(Manager.move, operator=operator, parts=parts, first=first))

    def persist(
        self, number: int, *, full: bool | None = None, only: str | None = None, last: bool = False
    ) -> Cut | None:
        """Announces a cut; returns None if none is possible now. Listeners are notified of its result."""
        return self._change(partial(Manager.persist, number=number, full=full, only=only, last=last))

    def abandon_cut(self, number: int, why: str) -> None:
        """Abandons a cut if it is not complete; listeners are notified of the reason."""
        self._do(partial(self.manager.abandon_cut, number, why))
