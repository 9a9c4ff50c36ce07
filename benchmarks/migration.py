"""Migration, rescaling and recovery against what issue 6 wants: `python benchmarks/migration.py [--quick]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

# As a script, this folder is first on the path and this file hides others of the same name: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pyspark import SparkContext

from benchmarks import pauses, replica_recovery, rescaling, slot_overhead
from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target, table
from primitives.errors import SeepError
from seep.spark.session import open_session


class Sizes(NamedTuple):
    """The sizes of the measurements."""

    pauses: tuple[int, ...] = (1_000_000, 10_000_000, 50_000_000)  #: keys
    keys: int = 1_000_000  #: of everything else, and the least of recovery
    times: int = 3  #: of each, of which the median counts
    seconds: float = 8.0
    bits: tuple[int, ...] = tuple(range(4, 21, 2))


QUICK = Sizes(pauses=(200_000,), keys=100_000, times=1, seconds=2.0, bits=(4, 12, 20))

PARTS: dict[str, Callable[[SparkContext, Sizes], dict[str, float]]] = {
    "pauses": lambda spark, sizes: pauses.measure(spark, sizes.pauses, sizes.seconds, sizes.times),
    "rescaling": lambda spark, sizes: rescaling.measure(spark, sizes.keys, sizes.times),
    "slots": lambda spark, sizes: slot_overhead.measure(spark, sizes.keys, sizes.bits, sizes.seconds),
    "recovery": lambda spark, sizes: replica_recovery.measure(spark, sizes.keys, sizes.times),
}

#: For p99 with 2^k slots to that without, up to so many.
_MOST_OVERHEAD = {12: 1.3, 16: 2.0}


def targets(sizes: Sizes) -> Mapping[str, Target]:
    """Returns the targets for these sizes."""
    return {
        **{key: target for keys in sizes.pauses for key, target in _of_pauses(pauses.label(keys)).items()},
        "rescale_gap_ms": Target("Rescaling 1 to 2 and back: longest time between two commits", "ms", 1.0, 50.0),
        **{f"slots_2e{k}_p99_ratio": _of_slots(k) for k in sizes.bits if k <= max(_MOST_OVERHEAD)},
        "replica_recovery_16x_over_1x": Target("Recovery from a replica: of 16 times the state", "", 1.0, 1.5),
        "replica_on_disk_recovery_16x_over_1x": Target("  with the state on disk", "", 1.0, 1.5),
        "replica_over_storage_recovery": Target("  over that from storage", "", 1.0, 0.1),
        "replica_over_storage_recovery_on_disk": Target("  with the state on disk", "", 1.0, 0.1),
    }


def _of_pauses(size: str) -> dict[str, Target]:
    unprepared = f"{size} keys: highest latency of batched, over unprepared"
    return {
        f"batched_max_over_all_at_once_max_{size}": Target(unprepared, "", 1.0, 1 / 20),
        f"batched_max_over_steady_p99_{size}": Target("  over the p99 without migration", "", 1.0, 3.0),
        f"fluid_max_over_steady_p99_{size}": Target("  of fluid, over the same", "", 1.0, 2.0),
    }


def _of_slots(k: int) -> Target:
    bound = next(bound for most, bound in _MOST_OVERHEAD.items() if k <= most)
    return Target(f"2^{k} slots: p99, over that of a count that cannot move", "", 1.0, bound)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    sizes = sizes._replace(pauses=tuple(keys for keys in sizes.pauses if keys <= options.most))
    measured: dict[str, float] = {}
    failed = False
    with open_session(name="benchmarks") as host:
        for name in options.only or PARTS:
            progress(name)
            try:
                measured |= PARTS[name](host.context, sizes)
            except SeepError as reason:
                failed = True
                print(f"{name} failed: {reason}", file=sys.stderr)
    if "rescale_gap_ms" in measured:
        print(
            "Rescaling elsewhere, as given with the target, not measured here (ms)\n"
            + table({}, rescaling.PEERS)
            + "\n"
        )
    tell(measured, targets(sizes), options.json)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, "benchmarks/migration.py --only slots")
    parser.add_argument("--quick", action="store_true", help="with little state: to see that it works")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; again for more")
    parser.add_argument("--most", type=_count, default=_count("10M"), metavar="KEYS", help="of the pauses (10M; 50M)")
    return parser


def _count(text: str) -> int:
    """A number as people write it.

    >>> _count("50M"), _count("200k"), _count("7")
    (50000000, 200000, 7)
    """
    scale = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    return int(text.rstrip("kM")) * scale


if __name__ == "__main__":
    raise SystemExit(main())
