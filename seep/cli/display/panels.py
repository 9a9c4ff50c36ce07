"""Panels: a run at one moment as text and tables with a bounded number of rows, however large the run is."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from primitives.event import event_text
from seep.record.status import InstanceStatus, NodeStatus, OperatorStatus, Status
from seep.reports import figures
from seep.reports.health import names

#: The most rows of a list that is not drawn on a terminal, and the fewest of one that is.
MOST, _FEWEST = 20, 3
#: Lines of the screen that are not rows of a list, and the number of lists that share the others.
_OTHER_LINES, LISTS = 22, 4
#: The most sentences and decisions that are shown.
_SENTENCES = 8


class RunMoment(NamedTuple):
    """A run at one moment, as another process gets it from the run."""

    id: str
    query: str
    phase: str  #: running, finished, halted, failed or stopped
    failure: str
    status: Status
    wrong: tuple[str, ...]  #: what is wrong, in sentences
    events: tuple[Mapping[str, Any], ...]  #: the newest ones, as JSON


def rows_for(height: int) -> int:
    """Returns the number of rows that each list of a screen of so many lines has."""
    return max(_FEWEST, (height - _OTHER_LINES) // LISTS)


def panels(moment: RunMoment, most: int = MOST) -> Group:
    """Returns all panels, the most important first, with at most `most` rows in each list."""
    status = moment.status
    parts: list[RenderableType] = [_title(moment), *_health(moment), *map(Text, _flow(status))]
    parts += _section("operators", operator_table(status, most))
    parts += _section("instances", instance_table(status, most))
    parts += _section("nodes", node_table(status, most))
    parts += _lines("open decisions", _decisions(status), _SENTENCES)
    parts += _lines("checkpoints", [_checkpoints(status)])
    parts += _lines("VMs", [_vms(status)])
    parts += _lines(
        "newest events", [f"{each['at']:9.2f} s  {event_text(each)}" for each in moment.events[: -most - 1 : -1]]
    )
    return Group(*parts)


def summary(moment: RunMoment) -> Group:
    """Returns a few lines: what the run is at, whether it is healthy, its rates, and where it runs."""
    status = moment.status
    if moment.failure:
        moment = moment._replace(wrong=(moment.failure, *moment.wrong))
    where = f"{figures.of(len(status.instances), 'instance')} on {_nodes(status)}; {_checkpoints(status)}"
    return Group(_title(moment), *_health(moment), *map(Text, [*_flow(status), where]))


# -- is it healthy -----------------------------------------------------------------------------------------------------


def _title(moment: RunMoment) -> Text:
    text = f"run {moment.id} of {moment.query}: {moment.phase}, {figures.time(moment.status.at)} since it began"
    return Text(text, style="bold")


def _health(moment: RunMoment) -> Iterator[Text]:
    """Yields what is wrong, or that the run is healthy."""
    for sentence in moment.wrong[:_SENTENCES]:
        yield Text(f"! {sentence}", style="red")
    if more := moment.wrong[_SENTENCES:]:
        yield Text(f"! and {len(more):,} more", style="red")
    if not moment.wrong:
        yield Text("healthy: nothing is wrong", style="green")


def _flow(status: Status) -> Iterator[str]:
    """Yields a line of rates and latency, and a line of epochs, the watermark and counters."""
    latency = {name: status.latency[name] for name in ("p50", "p99") if name in status.latency}
    behind = [each.watermark_behind for each in status.operators if each.watermark_behind is not None]
    window = f" of at most {status.window}" if status.window else ""
    rates = (
        f"{status.rows_per_second:,.0f} rows/s in ({status.offered:,.0f} due)",
        f"{status.rows_out_per_second:,.0f} rows/s out",
        f"latency {figures.latency(latency)}",
    )
    yield "; ".join(rates)
    epochs = (
        f"{figures.of(status.in_flight, 'epoch')} in flight{window}",
        f"last commit {figures.time(status.since_commit)} ago",
        f"watermark {max(behind):,} behind" if behind else "no watermark",
        *(f"{name} {count:,}" for name, count in _counters(status.instances).items()),
    )
    yield "; ".join(epochs)


def _counters(instances: Iterable[InstanceStatus]) -> dict[str, int]:
    """Returns the sums of the live instances' counters that are not 0: late rows, dead letters, …"""
    sums: dict[str, int] = {}
    for name, count in (each for instance in instances for each in instance.counters.items() if each[1]):
        sums[name] = sums.get(name, 0) + count
    return sums


# -- tables ------------------------------------------------------------------------------------------------------------


def operator_table(status: Status, most: int = MOST) -> Group:
    """Returns a table with a row for each operator, in the order in which rows pass them."""
    headings = ("operator",)
    numbers = ("instances", "epoch", "rows/s in", "rows/s out", "busy", "latency", "behind", "outbox", "state")
    rows = ((_operator_row(each), _style(each, status)) for each in status.operators[:most])
    return _table(headings, numbers, rows, len(status.operators))


def _operator_row(each: OperatorStatus) -> Sequence[str]:
    rates = (f"{each.rows_in_per_second:,.0f}", f"{each.rows_out_per_second:,.0f}", f"{each.utilisation:.0%}")
    times = (figures.time(each.age), _behind(each.watermark_behind))
    sizes = (figures.size(each.outbox_bytes), figures.size(each.state_bytes))
    return (each.name, f"{each.instances:,}", f"{each.epoch:,}", *rates, *times, *sizes)


def instance_table(status: Status, most: int = MOST) -> Group:
    """Returns a table with a row for each instance; if there are more than `most`, for the busiest."""
    headings = ("instance", "node", "phase")
    numbers = ("epoch", "rows/s in", "rows/s out", "busy", "unsent", "behind", "outbox", "state")
    shown: Sequence[InstanceStatus] = status.instances
    if len(shown) > most:
        shown = heapq.nlargest(most, shown, key=lambda each: each.utilisation)
    rows = ((_instance_row(each), _style(each, status)) for each in shown)
    return _table(headings, numbers, rows, len(status.instances))


def _instance_row(each: InstanceStatus) -> Sequence[str]:
    rates = (f"{each.rows_in_per_second:,.0f}", f"{each.rows_out_per_second:,.0f}", f"{each.utilisation:.0%}")
    rest = (f"{each.unsent:,}", _behind(each.watermark_behind))
    sizes = (figures.size(each.outbox_bytes), figures.size(each.state_bytes))
    return (each.name, each.node, each.phase, f"{each.epoch:,}", *rates, *rest, *sizes)


def node_table(status: Status, most: int = MOST) -> Group:
    """Returns a table with a row for each node; if there are more than `most`, for those that use most CPU."""
    shown: Sequence[NodeStatus] = status.hosts
    if len(shown) > most:
        shown = heapq.nlargest(most, shown, key=lambda each: each.cpu)
    numbers = ("cores", "memory", "state", "read/s", "written/s", "received/s", "sent/s")
    rows = ((_node_row(each), "yellow" if each.state in ("leaving", "lost") else "") for each in shown)
    return _table(("node", "", "sends"), numbers, rows, len(status.hosts))


def _node_row(each: NodeStatus) -> Sequence[str]:
    sends = names([f"{kind} to {peer} {figures.size(nbytes)}" for peer, kind, nbytes in each.transfers])
    flows = (figures.size(round(flow)) for flow in (each.read, each.written, each.received, each.sent))
    sizes = (figures.size(each.rss), figures.size(each.state_bytes))
    return (each.name, each.state, sends, f"{each.cpu:.2f} of {each.cores:g}", *sizes, *flows)


def _style(each: OperatorStatus | InstanceStatus, status: Status) -> str:
    return "yellow" if each.utilisation > status.full else ""


def _behind(watermark_behind: int | None) -> str:
    return "" if watermark_behind is None else f"{watermark_behind:,}"


def _table(
    headings: Sequence[str], numbers: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], count: int
) -> Group:
    """Returns a table of rows with their styles, and a line with the number of rows that are not shown."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for cells, style in rows:
        table.add_row(*map(Text, cells), style=style)
    more = count - table.row_count
    return Group(table, Text(f"and {more:,} more", style="dim")) if more else Group(table)


# -- decisions, checkpoints, VMs ---------------------------------------------------------------------------------------


def _decisions(status: Status) -> list[str]:
    return [
        f"{each.kind} of {each.subject} for {figures.time(max(status.at - each.since, 0.0))}"
        f"{', by hand' if each.by_hand else ''}{f': {each.why}' if each.why else ''}"
        for each in status.decisions
    ] or ["none"]


def _checkpoints(status: Status) -> str:
    if not status.checkpoints:
        return "none was stored by this run"
    newest = status.checkpoints[-1]
    kind = "savepoint" if newest.is_savepoint else "checkpoint"
    return (
        f"{kind} {newest.id} at epoch {newest.epoch:,} is the newest: "
        f"{figures.time(newest.age)} old, {figures.size(newest.bytes)}"
    )


def _vms(status: Status) -> str:
    counts = ", ".join(f"{count:,} {state}" for state, count in status.vms.items()) or "none"
    return f"{counts}; {_nodes(status)}; {status.vm_seconds:,.0f} s of VMs so far"


def _nodes(status: Status) -> str:
    return f"{figures.of(status.nodes, 'node')} ({status.idle_nodes:,} idle)"


def _section(title: str, body: RenderableType) -> list[RenderableType]:
    return [Text(f"\n{title}", style="bold"), body]


def _lines(title: str, lines: Sequence[str], most: int = MOST) -> list[RenderableType]:
    more = [Text(f"and {len(lines) - most:,} more", style="dim")] if len(lines) > most else []
    return [Text(f"\n{title}", style="bold"), *map(Text, lines[:most]), *more]
