"""How the other threads of the driver reach the manager: each query and request has a name and a deadline."""

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

#: Seconds within which the event loop answers; it never waits for anything, so only a machine without CPU time is late.
ANSWERED = 30.0


class ManagerAccess:
    """Everything is done on the event loop, and whoever asks waits; EnvironmentFault if that takes too long."""

    _loop: EventLoop
    manager: Manager  #: for the event loop's thread

    def perform(self, effects: list[Effect]) -> None:
        """Does what the manager asks for; on the event loop."""
        raise NotImplementedError

    def on_loop(self, work: Callable[[], T], timeout: float = ANSWERED) -> T:
        """What some work comes to that is done on the event loop; EnvironmentFault if it takes too long."""
        return self._loop.ask(work, timeout)

    def put_on_loop(self, work: Work) -> None:
        """Has some work done on the event loop, and does not wait for it."""
        self._loop.put(work)

    def after(self, seconds: float, work: Work) -> None:
        """The event loop does the work once, so many seconds from now."""
        self._loop.after(seconds, work)

    def every(self, seconds: float, work: Work) -> None:
        """The event loop does the work again and again, for as long as it runs."""
        self._loop.every(seconds, work)

    def ask(self, question: Callable[[Manager], T], timeout: float = ANSWERED) -> T:
        """The answer to a question about the manager."""
        return self._loop.ask(partial(question, self.manager), timeout)

    def _change(self, change: Callable[[Manager], tuple[T, list[Effect]]]) -> T:
        """Has the manager change something, and does what follows from it."""
        return self._loop.ask(partial(self._changed, change), ANSWERED, name_of(change))

    def _changed(self, change: Callable[[Manager], tuple[T, list[Effect]]]) -> T:
        answer, effects = change(self.manager)
        self.perform(effects)
        return answer

    def _do(self, effects_of: Callable[[], list[Effect]]) -> None:
        """Has the manager do something that has no answer."""
        self._loop.ask(partial(self._perform_those_of, effects_of), ANSWERED, name_of(effects_of))

    def _perform_those_of(self, effects_of: Callable[[], list[Effect]]) -> None:
        self.perform(effects_of())

    # -- what is known ------------------------------------------------------------------------------------------------

    def live_nodes(self) -> frozenset[str]:
        return self.ask(queries.live_nodes)

    def staying_nodes(self) -> list[str]:
        """Live nodes that are not about to leave, oldest first."""
        return self.ask(queries.staying_nodes)

    def placement(self) -> dict[InstanceId, str]:
        """Instance -> the node that it lives on."""
        return self.ask(queries.placement)

    def latest_assignment(self, operator: str) -> Assignment:
        """Who owns which slots when all that is announced has taken effect."""
        return self.ask(partial(queries.latest_assignment, operator=operator))

    def backup_of(self, owner: InstanceId) -> BackupCopy | None:
        """The backup that an instance is restored from, if there is one."""
        return self.ask(partial(queries.backup_of, owner=owner))

    def safe_epoch(self, operator: str) -> int:
        """All instances of the operator are safe up to this epoch."""
        return self.ask(partial(queries.safe_epoch, operator=operator))

    def is_ending(self) -> bool:
        """Whether the input is to end, or has."""
        return self.ask(queries.is_ending)

    def final_epoch(self) -> int | None:
        """The last epoch of the query; None while that is not known."""
        return self.ask(queries.final_epoch)

    def cut_waits_for(self) -> str | None:
        """What the cut under way still lacks, in words; None if there is none."""
        return self.ask(queries.cut_waits_for)

    def cut_outlook(self) -> queries.CutOutlook:
        """What the next cut would build on, and what it would have to have."""
        return self.ask(queries.cut_outlook)

    def home_of(self, source: str, slot: int) -> str | None:
        """The node of the instance that owns a slot from some time on."""
        return self.ask(partial(queries.home_of, source=source, slot=slot))

    def oldest_needed(self, source: str) -> dict[int, Any]:
        """For each slot, the first position that an instance may be asked to read on from."""
        return self.ask(partial(queries.oldest_needed, source=source))

    def positions_behind(self, source: InstanceId, sink: InstanceId) -> Mapping[int, Any]:
        """How far the source had been read in the last epoch that the sink has committed."""
        return self.ask(partial(queries.positions_behind, source=source, sink=sink))

    # -- what it is to do ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Ends the input; what was read is processed and committed."""
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
        """Announces a cut; None if there can be none now. What becomes of it listeners are told."""
        return self._change(partial(Manager.persist, number=number, full=full, only=only, last=last))

    def abandon_cut(self, number: int, why: str) -> None:
        """Ends a cut if it is still under way; listeners are told why."""
        self._do(partial(self.manager.abandon_cut, number, why))
