"""Access to the manager from other threads of the driver: each query and request has a name and a deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from primitives.slots import SlotSet
from seep.driver import queries
from seep.protocol.cuts import Cut
from seep.protocol.effects import Effect
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Accepted, Refused
from seep.threads.event_loop import EventLoop, Work, name_of

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds within which the event loop answers; it never blocks, so it is late only without CPU time.
ANSWERED = 30.0


def _asked(question: Callable[Concatenate[Manager, P], T]) -> Callable[Concatenate[ManagerAccess, P], T]:
    """The method that asks a question about the manager on the event loop."""

    @wraps(question)
    def ask(access: ManagerAccess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return access.on_loop(partial(question, access.manager, *args, **kwargs))

    return ask


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

    # -- queries, each documented where it is defined ------------------------------------------------------------------

    live_nodes = _asked(queries.live_nodes)
    staying_nodes = _asked(queries.staying_nodes)
    placement = _asked(queries.placement)
    latest_assignment = _asked(queries.latest_assignment)
    topology = _asked(queries.topology)
    backup_of = _asked(queries.backup_of)
    safe_epoch = _asked(queries.safe_epoch)
    is_ending = _asked(queries.is_ending)
    final_epoch = _asked(queries.final_epoch)
    cut_waits_for = _asked(queries.cut_waits_for)
    cut_outlook = _asked(queries.cut_outlook)
    home_of = _asked(queries.home_of)
    oldest_needed = _asked(queries.oldest_needed)
    positions_behind = _asked(queries.positions_behind)

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
