"""Shows queries, streams, runs, reports and migrations in notebooks: fragments of HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import pyarrow as pa

from primitives.event import Event
from primitives.graph import QueryGraph
from seep.control.migration import MigrationProgress
from seep.record.status import OperatorStatus, Status
from seep.reports import figures
from seep.reports.graph import Notes, graph_svg

#: The newest events that are shown of a run.
_EVENTS = 8
#: Characters of a value that are shown in a table of rows.
_VALUE = 80

_STYLE = """
.seep-card { font: 13px/1.5 system-ui, sans-serif; max-width: 1100px; }
.seep-card table { border-collapse: collapse; margin: .3em 0; font: inherit; }
.seep-card td, .seep-card th { text-align: left; padding: .1em 1em .1em 0; vertical-align: top; font-weight: normal; }
.seep-card th { opacity: .7; } .seep-card .number { text-align: right; white-space: nowrap; }
.seep-card .wrong { color: #c0392b; font-weight: 600; } .seep-card .title { font-weight: 600; }
.seep-card progress { width: 16em; vertical-align: middle; }
"""


def card(title: str, *parts: str) -> str:
    """Returns a fragment with a title, which is escaped, and parts, which are HTML."""
    return (
        f'<div class="seep-card"><style>{_STYLE}</style><div class="title">{escape(title)}</div>{"".join(parts)}</div>'
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Returns a table of texts, which are escaped; the columns at the places `numbers` are aligned as numbers."""
    right = frozenset(numbers)

    def cells(texts: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if at in right else ''}>{escape(text)}</{tag}>" for at, text in enumerate(texts)
        )

    head = [f"<tr>{cells(headings, 'th')}</tr>"] if headings else []
    return "<table>" + "".join(head + [f"<tr>{cells(row, 'td')}</tr>" for row in rows]) + "</table>"


def line(text: str, kind: str = "") -> str:
    """Returns a line of text, which is escaped."""
    return f"<div{f' class={kind}' if kind else ''}>{escape(text)}</div>"


# --- queries and streams ----------------------------------------------------------------------------------------------


def columns_table(schema: pa.Schema, keys: Sequence[str], time: str | None) -> str:
    """Returns a table of a stream's columns."""
    roles = dict.fromkeys(keys, "key")
    if time is not None:
        roles[time] = "event time" if time not in roles else "key, event time"
    return table(("column", "type", ""), [(each.name, str(each.type), roles.get(each.name, "")) for each in schema])


def rows_table(rows: pa.Table) -> str:
    """Returns a table of rows; long values are cut."""
    numeric = [at for at, each in enumerate(rows.schema) if pa.types.is_integer(each.type)]
    shown = [[figures.cut(str(value), _VALUE) for value in row.values()] for row in rows.to_pylist()]
    return table(rows.column_names, shown, numeric)


# --- runs -------------------------------------------------------------------------------------------------------------


def live_graph(graph: QueryGraph, status: Status) -> str:
    """Returns the query graph with the figures of a run at one moment, as SVG."""
    notes = {each.name: _notes(each, status.full) for each in status.operators}
    rates: dict[tuple[str, str], float] = {}
    for edge in graph.edges:
        rate = status.edges.get(str(edge), 0.0)
        rates[edge.upstream, edge.downstream] = rates.get((edge.upstream, edge.downstream), 0.0) + rate
    arrows = {pair: f"{figures.short(rate)} rows/s" for pair, rate in rates.items() if rate > 0}
    return graph_svg({o: graph.kind(o) for o in graph.order}, rates, notes, arrows)


def _notes(operator: OperatorStatus, full: float) -> Notes:
    lines = [f"{figures.of(operator.instances, 'instance')}, busy {operator.utilisation:.0%}"]
    if operator.state_bytes:
        lines.append(f"state {figures.size(operator.state_bytes)}")
    return Notes(lines, operator.utilisation, operator.utilisation > full)


def run_html(
    title: str, graph: QueryGraph, status: Status | None, events: Sequence[Event], failure: BaseException | None
) -> str:
    """Returns a run at one moment: its figures, its graph, open decisions, and the newest events."""
    parts = [line(str(failure).splitlines()[0] if str(failure) else repr(failure), "wrong")] if failure else []
    if status is not None:
        parts += [line(_figures_line(status)), live_graph(graph, status)]
        parts += [line(f"{each.kind} of {each.subject} is open: {each.why}") for each in status.decisions]
    if events:
        newest = [(f"{each.at:.1f} s", figures.cut(str(each), _VALUE)) for each in events[-_EVENTS:]]
        parts.append(table((), newest, [0]))
    return card(title, *parts)


def _figures_line(status: Status) -> str:
    vms = ", ".join(f"{count} {state}" for state, count in status.vms.items())
    return "; ".join(
        part
        for part in (
            f"{figures.of(status.rows_read, 'row')} read, {status.rows_per_second:,.0f} rows/s",
            f"latency {figures.latency(status.latency)}" if status.latency else "no latency yet",
            f"epoch {status.committed:,} committed, {status.ticked - status.committed:,} in flight",
            f"{figures.of(status.nodes, 'node')} ({status.idle_nodes} idle)",
            f"VMs: {vms}" if vms else "",
        )
        if part
    )


def migration_html(parts: Sequence[MigrationProgress]) -> str:
    """Returns the progress of a migration, by operator."""
    rows = []
    for each in parts:
        whole = max(each.slots_moved + each.slots_remaining, 1)
        bar = f'<progress value="{each.slots_moved}" max="{whole}"></progress>'
        words = (
            f"{each.slots_moved:,} of {figures.of(whole, 'slot')} moved in {each.steps_done} of "
            f"{figures.of(each.steps, 'step')}, {figures.size(each.bytes)} handed over and "
            f"{figures.size(each.bytes_ahead)} ahead, {figures.of(each.held_back, 'row')} held back, "
            f"{figures.time(each.seconds)}{f': {each.why}' if each.why else ''}"
        )
        rows.append(f"<div>{escape(f'{each.operator}: {each.state.value}')} {bar} {escape(words)}</div>")
    return card("migration", *rows)


class RunReport(dict[str, Any]):
    """The report of a run as plain data, which a notebook shows as the page of the report."""

    def _repr_html_(self) -> str:
        from seep.reports.page import page

        return (
            f'<iframe sandbox srcdoc="{escape(page(self), quote=True)}" title="report of {escape(self["query"])}" '
            'style="width: 100%; height: 640px; border: 0; background: #fff"></iframe>'
        )


def query_html(
    name: str, kinds: Mapping[str, Any], edges: Iterable[tuple[str, str]], lines: Mapping[str, Sequence[str]]
) -> str:
    """Returns a declared query as a graph, with lines of text by operator."""
    if not kinds:
        return card(f"query {name}", line("no operators yet"))
    return card(f"query {name}", graph_svg(kinds, edges, {each: Notes(texts) for each, texts in lines.items()}))
