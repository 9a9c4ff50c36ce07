"""The events of a run: what happened to whom, when, and how long it took."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Any

from seep.record.ring import Ring

#: Events of one kind that are kept.
_MOST = 1000

Listener = Callable[["Happening"], None]


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the log, one entry of the report."""

    kind: str
    at: float  #: seconds since the query began to run; before that, negative
    operator: str | None = None
    instance: str | None = None
    node: str | None = None
    detail: str = ""
    seconds: float | None = None  #: how long it took, where that is known
    parts: Mapping[str, float] = field(default_factory=dict)  #: of these seconds, by name
    numbers: Mapping[str, float] = field(default_factory=dict)  #: other figures, for the report

    def __str__(self) -> str:
        subject = self.instance or self.operator
        where = f"on {self.node}" if self.node and subject else self.node
        took = f"in {self.seconds:.3f} s" if self.seconds is not None else ""
        parts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in self.parts.items())
        words = (self.kind, subject, where, took, f"({parts})" if parts else "", self.detail)
        return " ".join(word for word in words if word)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "", {})}


class Events:
    """What happened so far, in order; listeners hear of each as it comes. For any thread.

    Of each kind the newest are kept, so that what happens often never drives out what happens once; `totals` counts
    all of them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock, self._most = clock, most
        self._start = clock()
        self._numbers = itertools.count()
        self._kinds: dict[str, Ring[tuple[int, Happening]]] = {}
        self._lock = threading.Lock()  #: held while an event gets its number and its place
        self._listeners: list[Listener] = []

    @property
    def now(self) -> float:
        """Seconds since the query began to run."""
        return self._clock() - self._start

    def begin(self) -> None:
        """The query begins to run now: that is the time that all others are told by."""
        passed = self.now
        self._start += passed
        with self._lock:
            before, self._kinds = self._kinds, {}
            for kind, ring in before.items():
                for number, happening in ring:
                    self._ring(kind).append((number, replace(happening, at=happening.at - passed)))

    def add(self, kind: str, **fields: Any) -> Happening:
        """Records an event; `at` is now unless given."""
        happening = Happening(kind, **({"at": self.now} | fields))
        with self._lock:
            self._ring(kind).append((next(self._numbers), happening))
        for listener in list(self._listeners):
            listener(happening)
        return happening

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def of(self, *kinds: str) -> list[Happening]:
        """Those of some kinds that are kept."""
        with self._lock:
            found = [numbered for kind in dict.fromkeys(kinds) for numbered in self._kinds.get(kind, ())]
        return [happening for _, happening in sorted(found, key=itemgetter(0))]

    @property
    def totals(self) -> dict[str, int]:
        """By kind, how many there ever were."""
        with self._lock:
            return {kind: ring.total for kind, ring in self._kinds.items()}

    def __iter__(self) -> Iterator[Happening]:
        """All that are kept."""
        with self._lock:
            kinds = list(self._kinds)
        return iter(self.of(*kinds))

    def __len__(self) -> int:
        """How many are kept."""
        with self._lock:
            return sum(len(ring) for ring in self._kinds.values())

    def _ring(self, kind: str) -> Ring[tuple[int, Happening]]:
        return self._kinds.setdefault(kind, Ring(self._most))
