"""The events of a run: what happened to whom, when, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

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
    """All events so far, in order; listeners hear of each as it comes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._all: list[Happening] = []
        self._listeners: list[Listener] = []

    @property
    def now(self) -> float:
        """Seconds since the query began to run."""
        return self._clock() - self._start

    def begin(self) -> None:
        """The query begins to run now: that is the time that all others are told by."""
        passed = self.now
        self._start += passed
        self._all = [replace(happening, at=happening.at - passed) for happening in self._all]

    def add(self, kind: str, **fields: Any) -> Happening:
        """Records an event; `at` is now unless given."""
        happening = Happening(kind, **({"at": self.now} | fields))
        self._all.append(happening)
        for listener in list(self._listeners):
            listener(happening)
        return happening

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def of(self, *kinds: str) -> list[Happening]:
        return [happening for happening in self._all if happening.kind in kinds]

    def __iter__(self) -> Iterator[Happening]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)
