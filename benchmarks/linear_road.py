"""Linear Road's traffic, made, replicated and read on one core: `python benchmarks/linear_road.py [--json]`.

Seconds are those of the CPU, so that other work on the machine takes nothing away.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

# As a script, this folder is first on the path: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.script import parser_of, tell
from benchmarks.table import Target
from lrb.data.reading import DeadLetters, read
from lrb.data.tables import written
from lrb.generator import Recording, TrafficSettings, traffic
from lrb.schema import INPUT

TARGETS = {
    "generator_tuples_per_s": Target("Generator: an hour of one expressway", "M tuples/s", 1e6, 5.0, at_least=True),
    "replicator_tuples_per_s": Target(
        "Replicator: to 100 expressways, each second", "M tuples/s", 1e6, 5.0, at_least=True
    ),
    "reader_tuples_per_s": Target(
        "Reader: the hour as CSV, every field checked", "M tuples/s", 1e6, 1.0, at_least=True
    ),
}
HOUR = TrafficSettings(seconds=3600)
XWAYS = range(100)
PASSES = 3


def run(settings: TrafficSettings = HOUR) -> dict[str, float]:
    """All rates, in tuples per second of one core."""
    Recording.of(TrafficSettings(seconds=20)).play(0, 1, XWAYS)  # compiles
    recording = Recording.of(settings)
    return {
        "generator_tuples_per_s": _best(lambda: sum(len(batch) for batch in traffic(settings))),
        "replicator_tuples_per_s": _best(lambda: _replicate(recording)),
        "reader_tuples_per_s": _reader(settings),
    }


def _replicate(recording: Recording) -> int:
    """The last ten minutes, second by second as a source would ask for them."""
    seconds = range(max(0, recording.seconds - 600), recording.seconds)
    return sum(len(recording.play(second, second + 1, XWAYS)) for second in seconds)


def _reader(settings: TrafficSettings) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traffic.csv"
        with written(path, INPUT) as write:
            for batch in traffic(settings):
                write(batch)
        return _best(lambda: sum(len(batch) for batch in read(path, DeadLetters())))


def _best(work: Callable[[], int]) -> float:
    return max(_rate(work) for _ in range(PASSES))


def _rate(work: Callable[[], int]) -> float:
    begin = process_time()
    return work() / (process_time() - begin)


def main(arguments: list[str] | None = None) -> int:
    options = parser_of(__doc__, "benchmarks/linear_road.py --json").parse_args(arguments)
    measured = run()
    tell(measured, TARGETS, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
