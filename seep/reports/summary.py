"""The summary of a report, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seep.reports import figures


def summary_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a report's summary."""
    summary = report["summary"]
    yield (
        f"{figures.of(summary['rows'], 'row')} in {figures.time(summary['seconds'])}: "
        f"{summary['rows_per_second']:,.0f} rows/s on average, {figures.of(summary['epochs'], 'epoch')}"
    )
    yield f"latency: {figures.latency(summary['latency'])}"
    yield f"longest time between two commits: {figures.time(summary['largest_gap'])}"
    for recovery in summary["recoveries"]:
        yield f"recovered {recovery['instance']} in {figures.time(recovery['seconds'])}{_breakdown(recovery)}"
    for scaling in summary["scalings"]:
        yield (
            f"scaled {scaling['operator']} from {scaling['before']} to {figures.of(scaling['after'], 'instance')} "
            f"at {scaling['at']:.1f} s in {figures.time(scaling['seconds'])}, "
            f"latency up to {figures.time(scaling['latency_peak'])}"
        )
    yield f"{figures.of(len(summary['vms']), 'VM')} for {summary['vm_seconds']:,.0f} s together"
    yield from (f"{name}: {_bound(summary)}{count:,}" for name, count in summary["counters"].items() if count)


def _bound(summary: Mapping[str, Any]) -> str:
    """Returns "at least" if the counters are not exact; reports of earlier releases do not say."""
    return "" if summary.get("counters_exact", True) else "at least "


def _breakdown(recovery: Mapping[str, Any]) -> str:
    parts = [
        f"{part} {figures.time(recovery[part])}" for part in ("detected", "restored", "replayed") if part in recovery
    ]
    return f" ({', '.join(parts)})" if parts else ""
