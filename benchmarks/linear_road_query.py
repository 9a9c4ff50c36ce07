"""Measures Linear Road's operators on one core: `python benchmarks/linear_road_query.py [--json]`.

Traffic of an hour into the benchmark on as many expressways as give batches of the size that 1,000 expressways give at
their peak in epochs of 50 ms. Seconds are those of the thread's CPU, so that other work takes nothing away.
"""

from __future__ import annotations

import sys
from pathlib import Path

# As a script, this folder is first on the path: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.script import parser_of, tell
from benchmarks.table import Target
from lrb.generator import Recording, TrafficSettings
from lrb.trials.fast_forward import OPERATORS, LocalChain

TARGETS = {
    f"{name}_ns_per_tuple": Target(f"{name}, for each tuple of the input", "ns", 1.0, 150.0) for name in OPERATORS
}
XWAYS = 80
HOUR = TrafficSettings(seconds=3_600)
#: Seconds of traffic that fill the state, and those that are measured.
WARM, MEASURED = 90, 60


def run(settings: TrafficSettings = HOUR, xways: int = XWAYS) -> dict[str, float]:
    """CPU time of each operator for each tuple of the input."""
    recording = Recording.of(settings)
    chain = LocalChain()
    begin = settings.seconds - MEASURED - WARM
    for second in range(begin, begin + WARM):
        chain.process(recording.play(second, second + 1, range(xways)), second - 1)
    chain.spent = dict.fromkeys(OPERATORS, 0.0)
    tuples = 0
    for second in range(begin + WARM, settings.seconds):
        batch = recording.play(second, second + 1, range(xways))
        tuples += len(batch)
        chain.process(batch, second - 1)
    return {f"{name}_ns_per_tuple": chain.spent[name] / tuples * 1e9 for name in OPERATORS}


def main(arguments: list[str] | None = None) -> int:
    options = parser_of(__doc__, "benchmarks/linear_road_query.py --json").parse_args(arguments)
    measured = run()
    tell(measured, TARGETS, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
