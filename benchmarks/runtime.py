"""Queries on real nodes against what issue 3 wants of them: `python benchmarks/runtime.py [--only NAME] [--json]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

# As a script, this folder is first on the path and this file hides the package of the same name: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pyspark import SparkContext

from benchmarks import latency, recovery, start, throughput
from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target
from primitives.errors import SeepError
from seep.spark.session import open_session

Measurement = Callable[[], dict[str, float]]

#: What is measured in one Spark session, in this order, after the cold start.
ON_SPARK: dict[str, Callable[[SparkContext, float], dict[str, float]]] = {
    "latency_20ms": latency.at_20_ms,
    "latency_5ms": latency.at_5_ms,
    "latency_2ms": latency.at_2_ms,
    "saturated": throughput.saturated,
    "recovery": recovery.measure,
    "checkpoint_cost": throughput.checkpoint_cost,
}
NAMES = ("start", *ON_SPARK)

TARGETS = {
    "start_s": Target("Cold start of `seep wordcount` to its first result", "s", 1.0, 10.0),
    "latency_20ms_p50_ms": Target("Latency at 100,000 rows/s, epochs of 20 ms: p50", "ms", 1.0, 13.0),
    "latency_20ms_p99_ms": Target("  p99", "ms", 1.0, 30.0),
    "latency_5ms_p50_ms": Target("Latency at 100,000 rows/s, epochs of 5 ms: p50", "ms", 1.0, 5.5),
    "latency_5ms_p99_ms": Target("  p99", "ms", 1.0, 15.0),
    "latency_2ms_p50_ms": Target("Latency at 10,000 rows/s, epochs of 2 ms: p50", "ms", 1.0, 2.8),
    "latency_2ms_p99_ms": Target("  p99", "ms", 1.0, 5.0),
    "saturated_rows_per_s": Target("Saturated: two counts of 1 M int64 keys", "M rows/s", 1e6, 15.0, at_least=True),
    "recovery_gap_s": Target("Kill -9 of a count of 1 M keys: longest pause at the sink", "s", 1.0, 0.5),
    "recovery_gap_worst_s": Target("  the worst of three", "s", 1.0, 0.5),
    "checkpoint_cost_percent": Target("Cost of checkpoints every 1 s, 10 % of 1 M keys changed", "%", 1.0, 5.0),
}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of(__doc__, "benchmarks/runtime.py --only saturated --seconds 5")
    parser.add_argument("--only", metavar="NAME", choices=NAMES, action="append", help=f"one of: {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run, beside its warm-up (10)")
    options = parser.parse_args(arguments)
    measured: dict[str, float] = {}
    failed = False
    for name, measurement in measurements(options.only or NAMES, options.seconds):
        progress(name)
        try:
            measured |= measurement()
        except SeepError as reason:
            failed = True
            print(f"{name} failed: {reason}", file=sys.stderr)
    tell(measured, TARGETS, options.json)
    return int(failed)


def measurements(names: Collection[str], seconds: float) -> Iterator[tuple[str, Measurement]]:
    """The measurements of these names, each to be done before the next one is asked for."""
    if "start" in names:
        yield "start", start.measure
    wanted = [name for name in ON_SPARK if name in names]
    if wanted:
        with open_session(name="benchmarks") as host:
            for name in wanted:
                yield name, partial(ON_SPARK[name], host.context, seconds)


if __name__ == "__main__":
    raise SystemExit(main())
