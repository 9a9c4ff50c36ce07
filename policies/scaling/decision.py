"""Decision: the result of a policy, before it becomes a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from policies.observation import History
from primitives.graph import InstanceId, QueryGraph


@dataclass(frozen=True, slots=True)
class Decision:
    """The number of instances that an operator is to have."""

    operator: str
    parallelism: int
    why: str  #: an explanation with the numbers, for the event and the report
    hot: tuple[InstanceId, ...] = ()  #: instances that are to be relieved first, hottest first


class Policy(Protocol):
    """Decides by the history alone, without clock, randomness or memory."""

    def decide(self, history: History) -> list[Decision]: ...


@runtime_checkable
class NamesOperators(Protocol):
    """A policy whose settings name operators; a user's policy may be one, too."""

    def check(self, graph: QueryGraph) -> None:
        """Raises UserError, before the query begins, if it lacks one of them."""
        ...
