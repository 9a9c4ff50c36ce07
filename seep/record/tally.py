"""The tally: the counters of all past and present instances, and the instances whose last figures are awaited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from seep.protocol.view import Incarnation

#: Number of latest different counts that are kept of a live instance.
_HISTORY = 128
#: Number of left instances that are remembered; no report is delayed for longer.
_REMEMBERED = 1024


@dataclass(slots=True)
class Tally:
    """Adds up counters by name, each row at most once; a lower bound from the first loss on.

    An instance that leaves says how much it has counted. One that is lost does not, and another one counts again what
    it processes again; so of the lost one only counts from before that are added.

    >>> from primitives.graph import InstanceId
    >>> tally, first = Tally(), Incarnation(InstanceId("counter", 0), 0)
    >>> tally.note(first, 7, {"late": 2}), tally.note(first, 9, {"late": 5})
    (None, None)
    >>> tally.total(), tally.is_exact
    ({'late': 5}, True)
    >>> tally.lost(first, 8)  # its successor processes all epochs from 9 on
    >>> tally.total(), tally.is_exact
    ({'late': 2}, False)
    """

    is_exact: bool = True  #: no instance was lost, and every one that left sent its last word
    _gone: Counter[str] = field(default_factory=Counter)
    #: of live instances: the last epoch that may be counted, and the counts; oldest first
    _live: dict[Incarnation, list[tuple[int, dict[str, int]]]] = field(default_factory=dict)
    _left: dict[Incarnation, None] = field(default_factory=dict)  #: oldest first

    def has_left(self, who: Incarnation) -> bool:
        """Whether the instance has sent its last figures."""
        return who in self._left

    def note(self, who: Incarnation, epoch: int, counters: Mapping[str, int]) -> None:
        """Notes what a live instance has counted, in epochs up to this one."""
        history = self._live.setdefault(who, [])
        if history and history[-1][1] == counters:
            return
        history.append((epoch, {name: int(count) for name, count in counters.items()}))
        if len(history) > _HISTORY:
            history[: _HISTORY // 2] = history[: _HISTORY // 2 : 2]

    def left(self, who: Incarnation) -> None:
        """Notes that the instance's last figures have been noted."""
        self._leave(who, None)

    def lost(self, who: Incarnation, up_to: int | None) -> None:
        """Notes that the instance ended without last figures; another one processes the epochs after `up_to` again."""
        if not self.has_left(who):
            self.is_exact = False
            self._leave(who, up_to)

    def unheard(self) -> None:
        """Notes that last figures have not come in time."""
        self.is_exact = False

    def total(self) -> dict[str, int]:
        """Returns the sums of all counters by name."""
        total = Counter(self._gone)
        for history in self._live.values():
            total.update(history[-1][1])
        return dict(total)

    def _leave(self, who: Incarnation, up_to: int | None) -> None:
        known = [counts for epoch, counts in self._live.pop(who, ()) if up_to is None or epoch <= up_to]
        if known:
            self._gone.update(known[-1])
        self._left[who] = None
        if len(self._left) > _REMEMBERED:
            del self._left[next(iter(self._left))]


@dataclass(slots=True)
class LastWords:
    """Awaits last figures until a deadline: of instances that were told to stop, and at the end of all nodes.

    >>> words = LastWords(patience=3.0)
    >>> words.expect("n1", "n1", 10.0), words.expect("n2", "n2", 11.0)
    (None, None)
    >>> words.heard("n1"), words.overdue(12.0), words.overdue(14.5), words.nodes
    (None, [], ['n2'], frozenset())
    """

    patience: float  #: seconds
    #: who -> its node, and the deadline
    _awaited: dict[str | Incarnation, tuple[str, float]] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes from which last figures are awaited."""
        return frozenset(node for node, _ in self._awaited.values())

    def expect(self, who: str | Incarnation, node: str, now: float) -> None:
        """Notes that a node, or an instance on it, was asked for its last figures."""
        self._awaited[who] = (node, now + self.patience)

    def heard(self, who: str | Incarnation) -> None:
        """Notes that the last figures have come."""
        self._awaited.pop(who, None)

    def lost(self, node: str) -> list[str | Incarnation]:
        """Removes a lost node; returns those whose last figures will not come any more."""
        return self._drop([who for who, (where, _) in self._awaited.items() if where == node])

    def overdue(self, now: float) -> list[str | Incarnation]:
        """Returns those that have missed the deadline, and stops waiting for them."""
        return self._drop([who for who, (_, deadline) in self._awaited.items() if now > deadline])

    def _drop(self, those: list[str | Incarnation]) -> list[str | Incarnation]:
        for who in those:
            del self._awaited[who]
        return those
