"""The primitives against plain kernels in the same run: `python benchmarks/primitives.py [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

# As a script, this folder is first on the path and this file hides the package of the same name: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import frame, split

#: key -> (what it is, unit, divisor for display, target, whether more is better)
TARGETS: dict[str, tuple[str, str, float, float, bool]] = {
    "frame_1m_rows_per_s": ("Frame: get-or-create and add, 1 M int64 keys", "M rows/s", 1e6, 20.0, True),
    "frame_1m_ratio_to_kernel": ("  as a ratio to a plain Numba kernel", "", 1.0, 0.5, True),
    "frame_10m_rows_per_s": ("Frame: the same with 10 M keys", "M rows/s", 1e6, 10.0, True),
    "snapshot_1pct_ratio_to_full": (
        "Snapshot of 1 % changed of 10 M rows, as part of a full one",
        "",
        1.0,
        0.05,
        False,
    ),
    "frame_bytes_per_row": ("Frame: memory at 10 M rows, index included", "bytes/row", 1.0, 48.0, False),
    "split_8_ns_per_row": ("Split of 5 columns by slot over 8 owners", "ns/row", 1.0, 100.0, False),
    "hash_int64_ns_per_row": ("Hash of int64", "ns/row", 1.0, 2.0, False),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: python benchmarks/primitives.py --json")
    parser.add_argument("--json", action="store_true", help="print one flat JSON object as the last line")
    options = parser.parse_args(arguments)
    print("measuring; about a minute", file=sys.stderr)
    measured = {**split.run(), **frame.run()}
    print(table(measured))
    if options.json:
        print(json.dumps({key: round(value, 4) for key, value in measured.items()}))
    return 0


def table(measured: dict[str, float]) -> str:
    """What was measured next to what was aimed at; measurements without a target come last."""
    lines = [f"{'':<62}{'measured':>10}  {'target':>8}  unit"]
    for key, (what, unit, divisor, target, more) in TARGETS.items():
        value, bound = measured[key] / divisor, f"{'>=' if more else '<'} {target:g}"
        met = value >= target if more else value < target
        lines.append(f"{what:<62}{value:>10.3g}  {bound:>8}  {unit}{'' if met else '  (missed)'}")
    return "\n".join(lines + [f"{key:<62}{value:>10.4g}" for key, value in measured.items() if key not in TARGETS])


if __name__ == "__main__":
    raise SystemExit(main())
