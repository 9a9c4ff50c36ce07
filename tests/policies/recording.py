"""Traces: histories as JSON lines, with what was found and decided at each moment, for tests that replay them.

The first line has the scaling settings and the query graph. Every other line is one observation, of instances only what
is not a default; and with it the changes known by then, the bottlenecks and the decisions. `python -m
tests.policies.recording` records the traces anew, for when policies are meant to decide otherwise; look at the diff.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from policies.observation import Change, History, InstanceReport, Observation
from policies.scaling.detector import bottlenecks
from policies.scaling.governor import Governor
from policies.scaling.registry import make_policy
from policies.scaling.settings import ScalingSettings
from primitives.graph import QueryGraph
from tests.policies.loop import Loop, ramp, step_at
from tests.policies.scenes import history, named, report

TRACES = Path(__file__).parent / "traces"

#: Digits that are kept of a measured number.
_DIGITS = 4
#: What an observation says of the query as a whole.
_LEVELS = tuple(each.name for each in fields(Observation) if each.name != "instances")


@dataclass(frozen=True, slots=True)
class Moment:
    """A history as it was at the end of one interval, and what was said of it."""

    history: History
    found: dict[str, str]  #: instance -> cause
    decided: dict[str, int]  #: operator -> instances


def moment(seen: History, scaling: ScalingSettings) -> Moment:
    """What detector and governed policy say of a history now."""
    decisions = Governor(make_policy(scaling), scaling, {}).decide(seen)
    return Moment(
        seen,
        {str(each.instance): each.cause.value for each in bottlenecks(seen, scaling.detector)},
        {each.operator: each.parallelism for each in decisions},
    )


def read_trace(path: Path) -> tuple[ScalingSettings, list[Moment]]:
    first, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return ScalingSettings(**first["scaling"]), list(_moments(QueryGraph.from_json(first["graph"]), lines))


def write_trace(path: Path, scaling: dict[str, Any], whole: History) -> None:
    """One line for each moment of a history, such as that of a run; decisions are those on the numbers as written."""
    first = {"scaling": scaling, "graph": whole.graph.to_json()}
    lines = [{**_line(each), "found": {}, "decided": {}} for each in unrolled(whole)]
    for line, written in zip(lines, _moments(whole.graph, lines), strict=True):
        said = moment(written.history, ScalingSettings(**scaling))
        line |= {"found": said.found, "decided": said.decided}
    path.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in (first, *lines)), "utf-8")


def unrolled(whole: History) -> list[History]:
    """The history as it was at the end of each interval, when policies were asked."""
    return [
        History(whole.graph, whole.observations[:count], _known_at(whole.observations[count - 1].at, whole.changes))
        for count in range(1, len(whole.observations) + 1)
    ]


def _known_at(now: float, changes: Iterable[Change]) -> tuple[Change, ...]:
    """Those begun before, and whether they were done."""
    begun = (change for change in changes if change.begun < now)
    return tuple(c if c.done is not None and c.done <= now else replace(c, done=None) for c in begun)


def _moments(graph: QueryGraph, lines: Iterable[dict[str, Any]]) -> Iterator[Moment]:
    seen: list[Observation] = []
    for line in lines:
        seen.append(_observation(line))
        changes = tuple(Change(**each) for each in line["changes"])
        yield Moment(History(graph, tuple(seen), changes), line["found"], line["decided"])


def _observation(line: dict[str, Any]) -> Observation:
    reports = [InstanceReport(instance=named(name), **said) for name, said in line["instances"].items()]
    levels = {name: line[name] for name in _LEVELS}
    return Observation(**levels, instances={each.instance: each for each in reports})


def _line(seen: History) -> dict[str, Any]:
    latest = seen.observations[-1]
    return {
        **{name: _rounded(getattr(latest, name)) for name in _LEVELS},
        "instances": {str(instance): _told(each) for instance, each in latest.instances.items()},
        "changes": [{each.name: getattr(change, each.name) for each in fields(Change)} for change in seen.changes],
    }


def _told(report: InstanceReport) -> dict[str, Any]:
    said = {each.name: getattr(report, each.name) for each in fields(report) if each.name != "instance"}
    defaults = {each.name: each.default for each in fields(report) if each.default is not MISSING}
    return {name: _rounded(value) for name, value in said.items() if defaults.get(name, MISSING) != value}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


# -- the traces --------------------------------------------------------------------------------------------------------


def _looped(scaling: dict[str, Any], **said: Any) -> tuple[dict[str, Any], History]:
    settings = ScalingSettings(**scaling)
    return scaling, Loop(make_policy(settings), settings, noise=0.03, **said).run(24).history


def _slow_store() -> tuple[dict[str, Any], History]:
    """A sink whose store gets slow, so that the output of the counter waits, too."""
    rounds = [
        [report("counter[0]", unsent=unsent), report("out[0]", utilisation=0.05, busy=busy, waiting=unsent)]
        for busy, unsent in [(0.2, 0), (0.4, 1), (0.9, 6), (0.97, 11), (0.98, 16)]
    ]
    return {"policy": "cpu-threshold", "sinks": True}, history(*rounds)


def _slow_link() -> tuple[dict[str, Any], History]:
    """A link that gets slow while all have time to spare: it is found, and nothing is scaled."""
    rounds = [[report("splitter[0]", unsent=unsent)] for unsent in (0, 2, 5, 9, 14)]
    return {"policy": "cpu-threshold"}, history(*rounds)


def main() -> None:
    quick = {"detector": {"report": 5}, "scale_in": {"consecutive": 2}, "cooldown": 5}
    traces = {
        "ramp-by-cpu-threshold": _looped({"policy": "cpu-threshold", **quick}, curve=ramp(300.0, 2000.0, 10.0, 50.0)),
        "jump-by-true-rate": _looped({"policy": "true-rate", **quick}, curve=step_at(20.0, 400.0, 2500.0)),
        "slow-store": _slow_store(),
        "slow-link": _slow_link(),
    }
    for name, (scaling, whole) in traces.items():
        write_trace(TRACES / f"{name}.jsonl", scaling, whole)


if __name__ == "__main__":
    main()
