"""The log of a run: its events, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from primitives.event import E, Event
from seep.record.ring import Ring

#: The most events of one kind that are kept.
_MOST = 1000

Listener = Callable[[Event], None]


class EventLog:
    """The events of a run in order; listeners are called with each new one. Thread-safe.

    The newest events of each kind are kept, so that frequent events never displace rare ones; `totals` counts all of
    them.

    >>> from seep.protocol.events import MoveComplete
    >>> log = EventLog(iter([10.0, 12.5]).__next__)
    >>> log.add(MoveComplete(operator="counter", plan=7)).at
    2.5
    >>> [event.text() for event in log.of("move complete")]
    ['move complete counter plan 7']
    """

    def __init__(self, clock: Callable[[], float], most: int = _MOST) -> None:
        self._clock, self._most = clock, most
        self._start = clock()
        self._newest = -1  #: number of the newest event
        self._kinds: dict[str, Ring[tuple[int, Event]]] = {}
        self._lock = threading.Lock()  #: held while an event gets its number and its place
        self._listeners: list[Listener] = []

    @property
    def now(self) -> float:
        """Seconds since the query began to run."""
        return self._clock() - self._start

    def begin(self) -> None:
        """Notes that the query begins to run now, from which all times are counted."""
        passed = self.now
        self._start += passed
        with self._lock:
            before, self._kinds = self._kinds, {}
            for kind, ring in before.items():
                for number, event in ring:
                    self._ring(kind).append((number, event.dated(event.at - passed)))

    def add(self, event: E) -> E:
        """Records an event; its time is now unless it has one."""
        dated = event if event.at else event.dated(self.now)
        with self._lock:
            self._newest += 1
            self._ring(event.kind).append((self._newest, dated))
        for listener in list(self._listeners):
            listener(dated)
        return dated

    def listen(self, listener: Listener) -> None:
        """Calls a listener with each event from now on, on the thread that adds the event."""
        self._listeners.append(listener)

    def of(self, *kinds: str) -> list[Event]:
        """Returns the kept events of some kinds."""
        return self._ordered(kinds, 0)

    def newest(self, most: int, *kinds: str) -> list[Event]:
        """Returns the newest events of each of some kinds, at most `most` of each, in order."""
        return self._ordered(kinds, -most)

    @property
    def number(self) -> int:
        """The number of the newest event; the first of a run has 0, and before it, it is -1."""
        return self._newest

    def after(self, number: int, most: int) -> tuple[int, list[Event]]:
        """Returns the number of the newest event, and the events after the one with a number: the newest `most`."""
        with self._lock:
            newest = self._newest
            first = max(number, newest - most)
            found = [each for ring in self._kinds.values() for each in ring.newest(lambda each: each[0] > first)]
        return newest, [event for _, event in sorted(found, key=itemgetter(0))]

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of which there has been an event."""
        with self._lock:
            return tuple(self._kinds)

    @property
    def totals(self) -> dict[str, int]:
        """Returns the number of all events so far, by kind."""
        with self._lock:
            return {kind: ring.total for kind, ring in self._kinds.items()}

    def __iter__(self) -> Iterator[Event]:
        """The kept events, in order."""
        return iter(self.of(*self.kinds))

    def __len__(self) -> int:
        """Number of kept events."""
        with self._lock:
            return sum(len(ring) for ring in self._kinds.values())

    def _ordered(self, kinds: Iterable[str], first: int) -> list[Event]:
        """Returns kept events, of each kind from a place in its ring on."""
        with self._lock:
            found = [
                each for kind in dict.fromkeys(kinds) if kind in self._kinds for each in list(self._kinds[kind])[first:]
            ]
        return [event for _, event in sorted(found, key=itemgetter(0))]

    def _ring(self, kind: str) -> Ring[tuple[int, Event]]:
        return self._kinds.setdefault(kind, Ring(self._most))
