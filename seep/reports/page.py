"""A report as one page of HTML: summary, charts over time, and a table of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from primitives.graph import Kind
from seep.reports import figures, series
from seep.reports.chart import Chart, Mark
from seep.reports.graph import Notes, graph_svg
from seep.reports.phases import changes_of, phases_svg
from seep.reports.slots import slots_line, slots_svg
from seep.reports.summary import summary_lines

Report = Mapping[str, Any]

#: Events that are marked in all charts, and their colours.
_MARKED = {
    "killed": "#c00000",
    "node lost": "#c00000",
    "recovered": "#008040",
    "scaled out": "#3060c0",
    "scaled in": "#3060c0",
    "migrated": "#8040a0",
    "balanced": "#8040a0",
}
#: Events that are left out of the table, because there are many, or they say little.
_OMITTED = {"node joined", "rebound", "restored", "move announced", "move complete", "vm ordered", "vm ready"}

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 920px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; } h2 { font-size: 1.05em; margin: 1.6em 0 .2em; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #444; }
.grid { stroke: #e4e4e4; } .axis { stroke: #888; } .mark { stroke-dasharray: 4 3; stroke-width: 1.2; }
.line { fill: none; stroke-width: 1.6; }
table { border-collapse: collapse; } td { padding: .1em .9em .1em 0; vertical-align: top; }
td:first-child { text-align: right; white-space: nowrap; } pre { background: #f6f6f6; padding: .7em; }
"""


def page(report: Report, notes: Sequence[str] = ()) -> str:
    """Returns the report in HTML, after lines of `notes`."""
    title = f"{report['query']}: a run of {figures.time(report['summary']['seconds'])}"
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *(f"<p>{escape(note)}</p>" for note in notes),
            f"<pre>{escape(chr(10).join(summary_lines(report)))}</pre>",
            *_graph(report),
            *(f"<h2>{escape(chart.title)}</h2>\n{chart.svg()}" for chart in charts(report)),
            *_phases(report),
            *_slots(report),
            "<h2>What happened</h2>",
            _table(report["events"]),
            "</body></html>",
        ]
    )


def _graph(report: Report) -> Iterator[str]:
    """Yields the query as a graph, with the last number of instances; reports of earlier versions have none."""
    if graph := report.get("graph"):
        kinds = {name: Kind(kind) for name, kind in graph["operators"].items()}
        yield "<h2>Query</h2>"
        yield graph_svg(kinds, map(tuple, graph["edges"]), _last_notes(report["series"]))


def _last_notes(samples: Sequence[Mapping[str, Any]]) -> Mapping[str, Notes]:
    """Returns the instances of each operator in the last sample that has any, and how busy the busiest was at most."""
    lines, busiest = series.instances_of_all(samples), series.utilisation(samples)
    return {
        name: Notes(
            [figures.of(int(points[-1][1]), "instance"), f"busy up to {_most(busiest[name]):.0%}"], _most(busiest[name])
        )
        for name, points in lines.items()
        if points
    }


def _most(points: Sequence[tuple[float, float]]) -> float:
    return max((value for _, value in points), default=0.0)


def _phases(report: Report) -> Iterator[str]:
    if changes := changes_of(report):
        yield "<h2>Phases of recoveries, scalings and migrations</h2>"
        yield phases_svg(changes, max(report["summary"]["seconds"], 1.0))


def _slots(report: Report) -> Iterator[str]:
    """Yields who owned which slots at the end, by operator."""
    if owned := report.get("slots"):
        yield "<h2>Slots, by owner</h2>"
        for operator, slots in owned.items():
            yield f"<div>{escape(f'{operator}: {slots_line(slots)}')}</div>\n{slots_svg(operator, slots)}"


def charts(report: Report) -> Iterator[Chart]:
    """Yields the charts for which there is data."""
    samples, events = report["series"], report["events"]
    given: dict[str, Any] = {"marks": list(_marks(events)), "seconds": max(report["summary"]["seconds"], 1.0)}
    yield Chart("Rows per second", series.throughput(samples), figures.short, **given)
    yield Chart("Latency, from due to committed", series.latency(samples), figures.time, log=True, **given)
    yield Chart("Instances", series.instances(samples), figures.short, steps=True, **given)
    yield Chart("CPU share that the busiest instance uses", series.utilisation(samples), "{:.0%}".format, **given)
    yield Chart("VMs", series.vms(samples), figures.short, steps=True, **given)


def _marks(events: Sequence[Mapping[str, Any]]) -> Iterator[Mark]:
    for event in events:
        if event["kind"] in _MARKED and event["at"] >= 0:
            yield Mark(event["at"], _MARKED[event["kind"]], f"{event['at']:.1f} s: {event['kind']} {_subject(event)}")


def _table(events: Sequence[Mapping[str, Any]]) -> str:
    rows = (_row(event) for event in events if event["kind"] not in _OMITTED)
    return "<table>" + "\n".join(rows) + "</table>"


def _row(event: Mapping[str, Any]) -> str:
    took = figures.time(event["seconds"]) if "seconds" in event else ""
    cells = (f"{event['at']:.2f} s", event["kind"], _subject(event), took, event.get("detail", ""))
    colour = _MARKED.get(event["kind"])
    style = f' style="color: {colour}"' if colour else ""
    return f"<tr{style}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _subject(event: Mapping[str, Any]) -> str:
    return str(event.get("instance") or event.get("operator") or event.get("node") or "")
