"""Span: a phase of a change or recovery, with its beginning, its end and its cause, as tracing systems have them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Value = str | int | float | bool | tuple[str, ...]


class SpanStatus(StrEnum):
    UNSET = "unset"  #: it is open, or the run was over before its end
    OK = "ok"
    ERROR = "error"  #: refused, aborted, given up or failed; `reason` says why


@dataclass(frozen=True, slots=True)
class Span:
    """A phase, as one node of the tree of its trace. Times are seconds since the query began to run.

    A span lies within its parent, from `start` to `end`.
    """

    trace: str  #: 32 hexadecimal digits, the same for all spans of a tree
    id: str  #: 16 hexadecimal digits
    parent: str | None  #: the `id` of its parent; None for the root
    name: str
    start: float
    end: float | None  #: None while it is open
    status: SpanStatus
    reason: str
    attributes: Mapping[str, Value]

    def to_json(self) -> dict[str, Any]:
        """Returns all that is not empty, in plain data."""
        told = {name: getattr(self, name) for name in ("trace", "id", "parent", "name", "start", "end", "reason")}
        values = {name: list(each) if isinstance(each, tuple) else each for name, each in self.attributes.items()}
        return {name: value for name, value in told.items() if value not in (None, "")} | {
            "status": self.status.value,
            "attributes": values,
        }


@dataclass(slots=True, eq=False)
class SpanTree:
    """A span that is being made, with its children.

    >>> tree = SpanTree("recovery", 9.0, {"node": "n2"})
    >>> tree.child("detected", 9.0).close(9.5)
    >>> tree.close(9.4)
    >>> for span in tree.spans("run-1", "1"):
    ...     print(span.name, span.start, span.end, span.status)
    recovery 9.0 9.5 ok
    detected 9.0 9.5 ok
    """

    name: str
    start: float
    attributes: dict[str, Value] = field(default_factory=dict)
    end: float | None = None
    status: SpanStatus = SpanStatus.UNSET
    reason: str = ""
    children: list[SpanTree] = field(default_factory=list)

    def child(self, name: str, start: float, **attributes: Value) -> SpanTree:
        """Opens a child."""
        self.children.append(SpanTree(name, start, attributes))
        return self.children[-1]

    def close(self, at: float, status: SpanStatus = SpanStatus.OK, reason: str = "") -> None:
        """Ends the span, and its open children with the same status. An ended span stays as it is."""
        if self.end is None:
            for child in self.children:
                child.close(at, status, reason)
            self.start = min(self.start, *(child.start for child in self.children), at)
            self.end = max(at, *(child.end or at for child in self.children), self.start)
            self.status, self.reason = status, reason

    def shift(self, seconds: float) -> None:
        """Counts all times from a moment that was so many seconds later."""
        self.start -= seconds
        self.end = None if self.end is None else self.end - seconds
        for child in self.children:
            child.shift(seconds)

    def spans(self, run: str, key: str) -> Iterator[Span]:
        """Yields the span and all below it, parents first. Their ids follow from `run` and `key` alone."""
        yield from self._below(run, _digits(32, run, key), key, None)

    def _below(self, run: str, trace: str, key: str, parent: str | None) -> Iterator[Span]:
        own = _digits(16, run, "span", key)
        yield Span(trace, own, parent, self.name, self.start, self.end, self.status, self.reason, dict(self.attributes))
        for number, child in enumerate(self.children):
            yield from child._below(run, trace, f"{key}/{number}", own)


def _digits(count: int, *parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:count]
