"""Event: something that has happened; a class for each kind, with typed fields and one line of text.

A class of events is made with the decorator `event`, which registers it under its kind. The properties of all events
(`operator`, `instance`, `node`, `detail`, `seconds`, `parts`, `numbers`) are fields of the class, or computed from its
fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, dataclass_transform

from primitives.graph import InstanceId

E = TypeVar("E", bound="Event")

#: The properties of every event beside its time, in the order of its JSON.
COMMON = ("operator", "instance", "node", "detail", "seconds", "parts", "numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that has happened: one line of the log, one entry of the report."""

    kind: ClassVar[str]  #: in words, as in the log

    at: float = 0.0  #: seconds since the query began, negative before that; the log sets it if it is not given

    @property
    def operator(self) -> str | None:
        """The operator concerned."""
        return None

    @property
    def instance(self) -> str | None:
        """The instance concerned, written `counter[2]`."""
        return None

    @property
    def node(self) -> str | None:
        """The node concerned."""
        return None

    @property
    def detail(self) -> str:
        """Further details, in words."""
        return ""

    @property
    def seconds(self) -> float | None:
        """The duration in seconds, if known."""
        return None

    @property
    def parts(self) -> Mapping[str, float]:
        """Parts of these seconds, by name."""
        return MappingProxyType({})

    @property
    def numbers(self) -> Mapping[str, float]:
        """Other figures by name."""
        return MappingProxyType({})

    def text(self) -> str:
        """One line, without its time."""
        return event_text({"kind": self.kind} | {name: getattr(self, name) for name in COMMON})

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        """Returns the properties of every event that are not empty, then the other fields of the class."""
        common = {"kind": self.kind, "at": self.at} | {name: plain(getattr(self, name)) for name in COMMON}
        told = {*common, *self.parts, *self.numbers, "subject"}
        own = {each.name: plain(getattr(self, each.name)) for each in fields(self) if each.name not in told}
        own = {name: value for name, value in own.items() if value != self.detail}
        return {name: value for name, value in (common | own).items() if value not in (None, "", {}, [])}

    def dated(self: E, at: float) -> E:
        """The same event at another time."""
        return replace(self, at=at)


def event_text(told: Mapping[str, Any]) -> str:
    """Returns the line of text of an event that is given as its JSON.

    >>> event_text({"kind": "recovered", "at": 3.0, "instance": "counter[0]", "node": "n2", "seconds": 1.5})
    'recovered counter[0] on n2 in 1.500 s'
    """
    subject, node, seconds = told.get("instance") or told.get("operator"), told.get("node"), told.get("seconds")
    where = f"on {node}" if node and subject else node
    took = f"in {seconds:.3f} s" if seconds is not None else ""
    parts = ", ".join(f"{name} {each:.3f}" for name, each in (told.get("parts") or {}).items())
    words = (told["kind"], subject, where, took, f"({parts})" if parts else "", told.get("detail"))
    return " ".join(word for word in words if word)


_KINDS: dict[str, type[Event]] = {}


def event_kinds() -> Mapping[str, type[Event]]:
    """Returns all classes of events that were imported so far, by kind."""
    return MappingProxyType(_KINDS)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def event(kind: str) -> Callable[[type[E]], type[E]]:
    """Makes a class one of events of a kind, which no other class has.

    >>> @event("tea served")
    ... class TeaServed(Event):
    ...     '''Somebody has served tea.'''
    ...
    ...     cups: int
    ...
    ...     @property
    ...     def detail(self) -> str:
    ...         return f"{self.cups} cups"
    >>> TeaServed(cups=2, at=1.5).text()
    'tea served 2 cups'
    >>> TeaServed(cups=2, at=1.5).to_json()
    {'kind': 'tea served', 'at': 1.5, 'detail': '2 cups', 'cups': 2}
    >>> event_kinds()["tea served"] is TeaServed
    True
    """

    def register(cls: type[E]) -> type[E]:
        made = event_base(cls)
        made.kind = kind
        assert kind not in _KINDS or _KINDS[kind].__qualname__ == cls.__qualname__, f"two classes for {kind!r}"
        _KINDS[kind] = made
        return made

    return register


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def event_base(cls: type[E]) -> type[E]:
    """Makes a base class of events with common fields; it has no kind of its own."""
    for name in inspect.get_annotations(cls):
        if name not in cls.__dict__:
            setattr(cls, name, field())  # else the field's default would be the inherited property
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@event_base
class OperatorEvent(Event):
    """Something about an operator, and why."""

    operator: str
    why: str = ""

    @property
    def detail(self) -> str:
        return self.why


@event_base
class InstanceEvent(Event):
    """Something about an instance."""

    subject: InstanceId

    @property
    def operator(self) -> str:
        return self.subject.operator

    @property
    def instance(self) -> str:
        return str(self.subject)


@event_base
class NodeEvent(Event):
    """Something about a node, and why."""

    node: str
    why: str = ""

    @property
    def detail(self) -> str:
        return self.why


@event_base
class RunEvent(Event):
    """Something about the run as a whole, and why."""

    why: str = ""

    @property
    def detail(self) -> str:
        return self.why


def plain(value: Any) -> Any:
    """Converts a field's value to a JSON value.

    >>> plain({InstanceId("counter", 0): ("n1", "n2")})
    {'counter[0]': ['n1', 'n2']}
    """
    match value:
        case InstanceId():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return {str(plain(name)): plain(each) for name, each in value.items()}
        case tuple() | list() | Set():
            return [plain(each) for each in value]
    return value
