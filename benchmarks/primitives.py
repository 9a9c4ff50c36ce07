"""The primitives against plain kernels in the same run: `python benchmarks/primitives.py [--json]`."""

from __future__ import annotations

import sys
from pathlib import Path

# As a script, this folder is first on the path and this file hides the package of the same name: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import frame, split
from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target

TARGETS = {
    "frame_1m_rows_per_s": Target("Frame: get-or-create and add, 1 M int64 keys", "M rows/s", 1e6, 20.0, at_least=True),
    "frame_1m_ratio_to_kernel": Target("  as a ratio to a plain Numba kernel", "", 1.0, 0.5, at_least=True),
    "frame_10m_rows_per_s": Target("Frame: the same with 10 M keys", "M rows/s", 1e6, 10.0, at_least=True),
    "snapshot_1pct_ratio_to_full": Target("Snapshot of 1 % changed of 10 M rows, as part of a full one", "", 1.0, 0.05),
    "frame_bytes_per_row": Target("Frame: memory at 10 M rows, index included", "bytes/row", 1.0, 48.0),
    "split_8_ns_per_row": Target("Split of 5 columns by slot over 8 owners", "ns/row", 1.0, 100.0),
    "hash_int64_ns_per_row": Target("Hash of int64", "ns/row", 1.0, 2.0),
}


def main(arguments: list[str] | None = None) -> int:
    options = parser_of(__doc__, "benchmarks/primitives.py --json").parse_args(arguments)
    progress("for about a minute")
    measured = {**split.run(), **frame.run()}
    tell(measured, TARGETS, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
