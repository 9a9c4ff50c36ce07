"""Decision: what a policy wants, before it becomes a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from policies.observation import History
from primitives.graph import InstanceId, QueryGraph


@dataclass(frozen=True, slots=True)
class Decision:
    """An operator is to have so many instances."""

    operator: str
    parallelism: int
    why: str  #: for the event and the report, with the numbers that led to it
    hot: tuple[InstanceId, ...] = ()  #: instances that are to be relieved first, hottest first


class Policy(Protocol):
    """Decides by the history alone: no clock, no chance, no memory of its own."""

    def decide(self, history: History) -> list[Decision]: ...


@runtime_checkable
class NamesOperators(Protocol):
    """A policy whose settings name operators; yours may be one, too."""

    def check(self, graph: QueryGraph) -> None:
        """UserError, before the query begins, if it does not have one of them."""
        ...
