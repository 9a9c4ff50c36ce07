"""NEXMark: what the generator makes, and what each query takes: `python benchmarks/nexmark.py [--only Q5] [--json]`.

`generator` and `chain` are CPU time of one core, which other work takes nothing of; `saturated` is a run on real nodes,
whose source makes events as fast as the query takes them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pyspark import SparkContext

# As a script, this folder is first on the path and this file hides the package of the same name: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import seep
from benchmarks.nexmark_chain import Chain
from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target
from nexmark.driver import compile_kernels
from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.queries import QUERIES
from nexmark.schema import KINDS
from nexmark.source import GeneratedEvents
from seep import sinks
from seep.rows.position import rows_up_to
from seep.spark.session import open_session

#: Millions of events a second that are wanted of two cores.
WANTED = {"Q1": 10.0, "Q2": 10.0, "Q5": 3.0, "Q8": 3.0, "Q3": 2.0, "Q4": 2.0, "Q6": 2.0, "Q7": 2.0}
_PLAIN = EventSettings(filler=False)
#: Events that are made, or worked on, at a time.
_BLOCK = 1 << 18
_WARM_UP = 4.0
EPOCH = 0.05
#: Of one instance of each operator.
NODES = 3

TARGETS = {"generator_per_s": Target("Events made on one core, all numbers", "M/s", 1e6, 10.0, at_least=True)} | {
    f"{name}_events_per_s": Target(f"{name} on two cores, saturated", "M/s", 1e6, WANTED[name], at_least=True)
    for name in QUERIES
    if name in WANTED
}


def generator(events: int) -> dict[str, float]:
    """Events made a second of CPU: all columns that are numbers, or all with text and filler."""
    numbers = {kind: [field.name for field in KINDS[kind] if field.type == "int64"] for kind in EventKind}
    whole = {kind: KINDS[kind].names for kind in EventKind}
    return {
        "generator_per_s": _made(EventSettings(), numbers, events),
        "generator_text_per_s": _made(EventSettings(), whole, events // 10),
    }


def _made(settings: EventSettings, columns: Mapping[EventKind, list[str]], events: int) -> float:
    model, block = EventGenerator(settings), min(_BLOCK, events)
    _make(model, columns, 0, block)
    begin = time.thread_time()
    for first in range(0, events, block):
        _make(model, columns, first, block)
    return -(-events // block) * block / (time.thread_time() - begin)


def _make(model: EventGenerator, columns: Mapping[EventKind, list[str]], first: int, block: int) -> None:
    numbers = model.at(np.arange(first, first + block))
    for kind, names in columns.items():
        model.columns(kind, numbers[model.where(numbers, [kind])], names)


def chain(name: str, events: int) -> dict[str, float]:
    """CPU of all operators of a query together, the source among them, for each event."""
    return {f"{name}_ns_per_event": sum(Chain(name, _PLAIN).measure(events, events, _BLOCK).values())}


def saturated(name: str, spark: SparkContext, seconds: float) -> dict[str, float]:
    """Events that a query takes, and rows that come into it, a second; it reads some kinds of events only."""
    query = QUERIES[name]
    compile_kernels(query, {})
    source = GeneratedEvents(query.wanted, _PLAIN)
    built = query.between(lambda _: source, sinks.discard())
    origin = next(iter(built.vertices))
    with seep.launch(built, spark, epoch=EPOCH, spare=0, checkpoint=5.0, nodes=NODES) as run:
        run.wait(_WARM_UP)
        before, begin = _rows(run, origin), time.monotonic()
        run.wait(seconds)
        rows = (_rows(run, origin) - before) / (time.monotonic() - begin)
        run.finish()
        run.wait(60)
    return {f"{name}_events_per_s": rows / source.share(), f"{name}_rows_per_s": rows}


def _rows(run: seep.Run, source: str) -> int:
    return rows_up_to(run.positions(source))


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of(__doc__, "benchmarks/nexmark.py --only Q5 --skip-runs")
    parser.add_argument("--only", metavar="QUERY", choices=QUERIES, action="append", help="again for more")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run, beside its warm-up (5)")
    parser.add_argument("--events", type=int, default=1_000_000, help="of each chain (1,000,000)")
    parser.add_argument("--skip-runs", action="store_true", help="CPU times only")
    options = parser.parse_args(arguments)
    names = options.only or list(QUERIES)
    measured = generator(options.events)
    for name in names:
        measured |= chain(name, options.events)
    if not options.skip_runs:
        with open_session(name="benchmarks") as host:
            for name in names:
                progress(name)
                measured |= saturated(name, host.context, options.seconds)
    tell(measured, TARGETS, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
