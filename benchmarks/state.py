"""Durable and large state against what issue 5 wants of it: `python benchmarks/state.py [--quick] [--json FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# As a script, this folder is first on the path and this file hides others of the same name: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pydantic import ByteSize, TypeAdapter

from benchmarks import larger, restart, stored
from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target

TARGETS = {
    "snapshot_mb_s": Target("Snapshot of numbers to files, one thread", "MB/s", 1, 300, at_least=True),
    "restore_mb_s": Target("Restore of numbers from files, one thread", "MB/s", 1, 500, at_least=True),
    "text_snapshot_mb_s": Target("Snapshot of texts to files, one thread", "MB/s", 1, 300, at_least=True),
    "text_restore_mb_s": Target("Restore of texts from files, one thread", "MB/s", 1, 500, at_least=True),
    "sixteenth_read_share": Target("Bytes read for a sixteenth of the slots, of all", "", 1, 1.3 / 16),
    "rocks_updates_s": Target("RocksDB: updates of keys at random, per core", "1/s", 1, 150_000, at_least=True),
    "rocks_zipf_updates_s": Target("  by Zipf's law", "1/s", 1, 150_000, at_least=True),
    "rocks_hot_updates_s": Target("  nine in ten to 1 % of the keys", "1/s", 1, 150_000, at_least=True),
    "rocks_incremental_share": Target("  bytes shipped after 1 % of the keys changed, of all", "", 1, 0.1),
    "rocks_peak_over_budget": Target("  memory at its peak, to the budget", "", 1, 1.2),
}


class Sizes(NamedTuple):
    """Bytes of what is measured, in full and with `--quick`."""

    stored: int = 512 << 20
    memory: int = 512 << 20
    restart: int = 1 << 30


QUICK = Sizes(64 << 20, 64 << 20, 64 << 20)

#: Memory is measured first, by a process that has not used any yet.
PARTS: dict[str, Callable[[Sizes], dict[str, float]]] = {
    "larger": lambda sizes: larger.run(sizes.memory),
    "stored": lambda sizes: stored.run(sizes.stored),
    "restart": lambda sizes: restart.run(sizes.restart),
}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of(__doc__, "benchmarks/state.py --only restart")
    parser.add_argument("--quick", action="store_true", help="with little state: to see that it works")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; again for more")
    parser.add_argument("--size", type=_size, metavar="SIZE", help="of the savepoint that is restored (1GiB)")
    parser.add_argument("--memory", type=_size, metavar="SIZE", help="of RocksDB, for four times the state (512MiB)")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    sizes = sizes._replace(restart=options.size or sizes.restart, memory=options.memory or sizes.memory)
    measured: dict[str, float] = {}
    for name in options.only or PARTS:
        progress(name)
        measured |= PARTS[name](sizes)
    tell(measured, TARGETS, options.json)
    return 0


def _size(text: str) -> int:
    return int(TypeAdapter(ByteSize).validate_python(text))


if __name__ == "__main__":
    raise SystemExit(main())
