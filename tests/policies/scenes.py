"""Scenes: small histories, written down as a few numbers per instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policies.observation import Change, History, InstanceReport, Observation
from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph

#: words -> splitter -> counter -> out
WORDS = QueryGraph(
    [
        OperatorSpec("words", Kind.SOURCE),
        OperatorSpec("splitter", Kind.STATELESS),
        OperatorSpec("counter", Kind.STATEFUL),
        OperatorSpec("out", Kind.SINK),
    ],
    [Edge("words", "splitter"), Edge("splitter", "counter"), Edge("counter", "out")],
)

#: What an instance does of which nothing is said: little.
IDLE: dict[str, Any] = {"utilisation": 0.1, "busy": 0.1, "rows_in": 100.0, "rows_out": 100.0, "slots": 128}

SECONDS = 5.0


def named(text: str) -> InstanceId:
    """
    >>> named("counter[2]") == InstanceId("counter", 2)
    True
    """
    operator, _, index = text.removesuffix("]").partition("[")
    return InstanceId(operator, int(index))


def report(instance: str, **said: Any) -> InstanceReport:
    """What one instance reports; on a node of its own, unless it says which."""
    return InstanceReport(**{"instance": named(instance), "node": f"vm-{instance}", **IDLE, **said})


def observation(number: int, *reports: InstanceReport, **said: Any) -> Observation:
    """The observation of an interval, counted from 1; an operator that is not mentioned has one idle instance."""
    mentioned = {each.instance.operator for each in reports}
    idle = [report(f"{operator}[0]") for operator in WORDS.order if operator not in mentioned]
    found = Observation(SECONDS * number, SECONDS, {each.instance: each for each in (*idle, *reports)})
    return replace(found, **{"offered": {"words": 100.0}, **said})


def history(*rounds: Sequence[InstanceReport], changes: Sequence[Change] = (), **said: Any) -> History:
    """One observation for each round of reports; what is said besides is said of all."""
    seen = tuple(observation(number, *reports, **said) for number, reports in enumerate(rounds, 1))
    return History(WORDS, seen, tuple(changes))


def repeated(times: int, *reports: InstanceReport, changes: Sequence[Change] = (), **said: Any) -> History:
    """The same reports again and again."""
    return history(*[reports] * times, changes=changes, **said)


def changed(operator: str, before: int, after: int, begun: float, done: float | None) -> Change:
    return Change(operator, begun, before, after, done)
