"""Skew: what a hotspot takes of the throughput, and what balancing gives back (as in section IV of AutoFlow).

Rows are counted by key, by a function of the user's that is called for each of them, on nodes that are small VMs. The
source reads as fast as the query takes them, so what is counted in a second is what it can do.

    python benchmarks/skew.py --quick --json
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import seep
from benchmarks import pipelines
from benchmarks.script import parser_of, tell
from benchmarks.skewed import KEYS, Skew, Skewed
from benchmarks.table import Target
from policies.balance.settings import BalanceSettings
from seep.spark.session import Host, open_session
from vmpool.settings import PoolSettings, VMSettings

#: Of a core, for each node: so little that the machine has enough for all of them.
CPU = 0.1
EPOCH = 0.1
WINDOW = 2.0
#: A key's count comes out each time that it has grown by this.
EVERY = 50
#: Seconds until a run has found its pace, and until it is given up that slots will come to rest.
WARM_UP, PATIENCE = 6.0, 40.0
#: Rows per second that stand for a second before it is known how many there are.
_UNKNOWN = 1.0
#: Seconds of rows in which a hotspot goes round, and after a spike.
ROUNDS, AFTER = 40.0, 5.0
#: Epochs that may be open at once: slots move behind what is on its way, and before a hotspot that piles up.
IN_FLIGHT = 4
#: Windows without a decision after which slots have come to rest.
RESTFUL = 3

_KEYS = pa.schema([("key", pa.int64())])
_COUNTS = pa.schema([("key", pa.int64()), ("n", pa.int64())])


def counts(skewed: Skewed) -> seep.Query:
    """source → counts in plain Python → sink"""
    query = seep.Query("skew")
    source = query.source("source", seep.sources.generator(skewed, _KEYS))
    counted = source.key_by("key").state_machine(
        "count", count, _COUNTS, initial=0, state_type=pa.int64(), parallelism=skewed.skew.instances
    )
    counted.sink("sink", seep.sinks.collect())
    return query


def count(n: int, row: Mapping[str, Any]) -> tuple[int, dict[str, Any] | None]:
    return n + 1, {"key": row["key"], "n": n + 1} if (n + 1) % EVERY == 0 else None


# -- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """The host of runs, the measured time of each, and the balancer."""

    host: Host
    seconds: float
    balancer: str

    def lasting(self, skew: Skew, rate: float, balanced: bool) -> dict[str, float]:
        """Rows per second that are counted once slots have come to rest."""
        with self._launched(skew, rate, balanced) as run:
            pipelines.watch(run, WARM_UP)
            if balanced:
                _come_to_rest(run)
            rows, begin = pipelines.rows_committed(run), time.monotonic()
            pipelines.watch(run, self.seconds)
            rows_per_s = (pipelines.rows_committed(run) - rows) / (time.monotonic() - begin)
            pipelines.finish(run)
            return {"rows_per_s": rows_per_s} | _checked(run)

    def passing(self, skew: Skew, rate: float, balanced: bool) -> dict[str, float]:
        """Rows per second that are counted from the begin of a hotspot until it is over for a while."""
        first, last = skew.begin * rate, (min(skew.end, skew.begin + ROUNDS) + AFTER) * rate
        with self._launched(skew, rate, balanced) as run:
            begin = _when_committed(run, first)
            rows_per_s = (last - first) / (_when_committed(run, last) - begin)
            pipelines.finish(run)
            return {"rows_per_s": rows_per_s} | _checked(run)

    def _launched(self, skew: Skew, rate: float, balanced: bool) -> seep.Run:
        return seep.launch(
            counts(Skewed(skew, rate)),
            self.host.context,
            epoch=EPOCH,
            checkpoint=5.0,
            window=IN_FLIGHT,
            patience=30.0,  # VMs as small as this may be silent for a while
            vm=VMSettings(cpu=CPU),
            pool=PoolSettings(size=0, reserve=0),
            balance=BalanceSettings(enabled=balanced, balancer=self.balancer, window=WINDOW),
        )


def _come_to_rest(run: seep.Run) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pipelines.watch(run, WINDOW / 4)
        begun, done = run.events.of("balancing"), run.events.of("balanced", "balancing called off")
        last = max((each.at for each in done), default=WARM_UP)
        if len(begun) == len(done) and run.status().at > last + RESTFUL * WINDOW:
            return


def _when_committed(run: seep.Run, rows: float) -> float:
    while pipelines.rows_committed(run) < rows:
        pipelines.watch(run, 0.1)
    return time.monotonic()


def _checked(run: seep.Run) -> dict[str, float]:
    """Returns the effects of balancing, after a check that every expected count came out exactly once."""
    found = run.result("sink")
    keys, numbers = found["key"].to_numpy(), found["n"].to_numpy()
    order = np.lexsort((numbers, keys))
    keys, numbers = keys[order], numbers[order]
    firsts = np.r_[True, keys[1:] != keys[:-1]]
    steps = np.where(firsts, numbers, np.diff(numbers, prepend=0))
    missing = pipelines.rows_read(run) - len(found) * EVERY
    if (steps != EVERY).any() or not 0 <= missing < KEYS * EVERY:
        raise seep.InternalError(f"counts are wrong; {missing} rows are missing, events: {[*map(str, run.events)]}")
    done, begun = run.events.of("balanced"), run.events.of("balancing")
    return {"migrations": float(len(begun))} | ({"balanced_after_s": done[-1].at} if done else {})


# -- what is measured -------------------------------------------------------------------------------------------------


def measured(bench: Bench, quick: bool) -> Iterator[tuple[str, dict[str, float]]]:
    """Each case with its figures, as soon as they are known."""
    rates = {}
    for instances in (3,) if quick else (3, 5):
        even = bench.lasting(Skew("even", instances), _UNKNOWN, balanced=False)["rows_per_s"]
        rates[instances] = even
        yield f"even_{instances}", {"rows_per_s": even}
        for skew in _lasting(instances, quick):
            found = _compared(partial(bench.lasting, skew, even))
            yield skew.name, found | {"of_even": found["rows_per_s"] / even}
    for skew in _passing(quick):
        yield skew.name, _compared(partial(bench.passing, skew, rates[3]))


def _lasting(instances: int, quick: bool) -> list[Skew]:
    if instances == 5:
        return [Skew(f"two_of_5_{share}", 5, share / 100, on=2) for share in (60, 80)]
    return [Skew(f"one_of_3_{share}", 3, share / 100) for share in ((80,) if quick else (50, 80))]


def _passing(quick: bool) -> list[Skew]:
    spikes = [Skew(f"spike_{seconds}s", 3, 0.8, begin=WARM_UP, end=WARM_UP + seconds) for seconds in (20, 10)]
    return [Skew("rotating", 3, 0.8, begin=WARM_UP, turn=10.0), *([] if quick else spikes)]


def _compared(run: Callable[[bool], dict[str, float]]) -> dict[str, float]:
    without, balanced = run(False), run(True)
    gain = balanced["rows_per_s"] / without["rows_per_s"]
    return {"without_rows_per_s": without["rows_per_s"]} | balanced | {"gain": gain}


#: By the end of the name of what was measured.
_TARGETS: dict[str, Callable[[str], Target]] = {
    "of_even": lambda name: Target(f"{name}: balanced, over the run without skew", "", 1.0, 0.9, at_least=True),
    "gain": lambda name: Target(f"{name}: balanced, over without balancing", "", 1.0, 1.0, at_least=True),
}


def targets(measured: Mapping[str, float]) -> dict[str, Target]:
    return {
        key: target(key.removesuffix(f".{what}"))
        for key in measured
        for what, target in _TARGETS.items()
        if key.endswith(f".{what}")
    }


def main() -> None:
    parser = parser_of(__doc__, "benchmarks/skew.py --quick")
    parser.add_argument("--quick", action="store_true", help="80 %% on one of three and the rotating hotspot only")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each run is looked at")
    parser.add_argument("--balancer", default="hotspot", help="hotspot, autoflow, or module:Class")
    arguments = parser.parse_args()
    found: dict[str, float] = {}
    with open_session(None, name="skew") as host:
        for name, figures in measured(Bench(host, arguments.seconds, arguments.balancer), arguments.quick):
            found |= {f"{name}.{what}": value for what, value in figures.items()}
            print(f"{name}: " + ", ".join(f"{what} {value:,.4g}" for what, value in figures.items()), flush=True)
    print()
    tell(found, targets(found), arguments.json)


if __name__ == "__main__":
    main()
