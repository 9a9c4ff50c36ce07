"""Recovery over one and over two instances, for several times between checkpoints (as in Fig. 13 of SEEP).

The counter is a function of the user's, called for each word: 500 fragments a second keep half of a small VM busy. What
it has to replay is the load since its last checkpoint; over two VMs, each replays half of the words.

    python benchmarks/parallel_recovery.py --intervals 5 30
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import seep
from benchmarks.script import parser_of, tell_json
from seep.rows.position import Position
from seep.spark.session import Host, open_session
from seep.workloads.wordcount import Fragments, recount, split
from vmpool.settings import PoolSettings, VMSettings

#: Fragments per second.
RATE = 500.0
#: Of a core, for each node.
CPU = 0.2
EPOCH = 0.25
#: How old the last checkpoint is when the counter is killed, as a part of the interval.
AGE = 0.9
#: A word's count comes out each time that it has grown by this.
EVERY = 100
#: Seconds that a recovery may take, besides what it may have to replay.
_PATIENCE = 60.0

_COUNTED = pa.schema([("word", pa.string()), ("n", pa.int64())])


def word_counts() -> seep.Query:
    """Fragments → words → counts, the last in plain Python."""
    query = seep.Query("word-counts")
    schema = pa.schema([("at", pa.timestamp("us")), ("text", pa.string())])
    lines = query.source("lines", seep.sources.generator(Fragments(RATE), schema, partitions=4, time="at"))
    words = lines.flat_map("splitter", split, pa.schema([("at", pa.timestamp("us")), ("word", pa.string())]))
    counts = words.key_by("word").state_machine("counter", count, _COUNTED, initial=0, state_type=pa.int64())
    counts.sink("out", seep.sinks.collect())
    return query


def count(n: int, row: Mapping[str, Any]) -> tuple[int, dict[str, Any] | None]:
    return n + 1, {"word": row["word"], "n": n + 1} if (n + 1) % EVERY == 0 else None


def recovery(host: Host, interval: float, parallelism: int) -> dict[str, float]:
    """The seconds from `kill -9` until the sink is past what was open then, and their parts. Checks the result."""
    options: dict[str, Any] = {
        "epoch": EPOCH,
        "checkpoint": interval,
        "window": 64,
        "recovery_parallelism": parallelism,
        "vm": VMSettings(cpu=CPU),
        "pool": PoolSettings(size=parallelism + 1),
    }
    with seep.launch(word_counts(), host.context, rate=seep.Rate(RATE), **options) as run:
        _until(run, lambda: run.status().at > (1 + AGE) * interval, 2 * interval)
        run.kill("counter")
        _until(run, lambda: bool(run.report()["summary"]["recoveries"]), 2 * interval + _PATIENCE)
        (found,) = run.report()["summary"]["recoveries"]
        instances = sum(name.startswith("counter") for name in run.placement)
        run.finish()
        run.wait(_PATIENCE + interval)
        _check(run, instances == parallelism)
    return {name: found[name] for name in ("seconds", "detected", "restored", "replayed")}


def _until(run: seep.Run, happened: Callable[[], bool], most: float) -> None:
    deadline = time.monotonic() + most
    while not happened():
        if run.wait(0.05) or time.monotonic() > deadline:
            raise seep.InternalError(f"it did not happen; events: {[*map(str, run.events)]}")


def _check(run: seep.Run, is_spread: bool) -> None:
    """Every word must have come out once for each EVERY of it."""
    rows = {partition: Position(*position).rows for partition, position in run.positions("lines").items()}
    expected: dict[str, int] = {}
    for (_, word), n in recount(rows, RATE).items():
        expected[word] = expected.get(word, 0) + n
    wanted = sorted((word, n) for word, whole in expected.items() for n in range(EVERY, whole + 1, EVERY))
    table = run.result("out")
    if sorted(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True)) != wanted or not is_spread:
        raise seep.InternalError(f"a wrong result, or a wrong recovery; events: {[*map(str, run.events)]}")


def measured(intervals: list[float]) -> Iterator[dict[str, float]]:
    with open_session(None, name="parallel recovery") as host:
        for interval in intervals:
            for parallelism in (1, 2):
                yield {"interval": interval, "instances": parallelism} | recovery(host, interval, parallelism)


def main() -> None:
    parser = parser_of(__doc__, "benchmarks/parallel_recovery.py --intervals 30")
    parser.add_argument("--intervals", type=float, nargs="+", default=[5.0, 30.0], help="seconds between checkpoints")
    arguments = parser.parse_args()
    print("interval  instances  recovered in   detected  restored  replayed")
    found = []
    for each in measured(arguments.intervals):
        found.append(each)
        print(
            f"{each['interval']:6.0f} s  {each['instances']:9.0f}  {each['seconds']:10.2f} s"
            f"  {each['detected']:7.2f} s {each['restored']:7.2f} s {each['replayed']:7.2f} s",
            flush=True,
        )
    tell_json(found, arguments.json)


if __name__ == "__main__":
    main()
