"""What Linear Road's operators take of one core: `python benchmarks/linear_road_query.py [--json]`.

Traffic of an hour into the benchmark on as many expressways as give batches of the size that 1,000 expressways give at
their peak in epochs of 50 ms. Seconds are those of the thread's CPU, so that other work takes nothing away.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from time import thread_time

import pyarrow as pa

# As a script, this folder is first on the path: look from the root.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.table import Target, table
from lrb.generator import Recording, Settings
from lrb.query.linear_road import linear_road
from lrb.schema import INPUT
from primitives.graph import Edge
from primitives.slots import SlotSet
from seep import sinks, sources
from seep.operators.batches import empty
from seep.protocol.logic import Logic, Piece
from seep.query.program import Program

OPERATORS = ("forwarder", "toll_calculator", "toll_assessment", "toll_collector", "balance_account")
TARGETS = {
    f"{name}_ns_per_tuple": Target(f"{name}, for each tuple of the input", "ns", 1.0, 150.0) for name in OPERATORS
}
XWAYS = 80
HOUR = Settings(seconds=3_600)
#: Seconds of traffic that fill the state, and those that are measured.
WARM, MEASURED = 90, 60


def run(settings: Settings = HOUR, xways: int = XWAYS) -> dict[str, float]:
    """CPU time of each operator for each tuple of the input."""
    recording = Recording.of(settings)
    chain = Chain()
    begin = settings.seconds - MEASURED - WARM
    for second in range(begin, begin + WARM):
        chain.second(second, recording.play(second, second + 1, range(xways)))
    chain.spent = dict.fromkeys(OPERATORS, 0.0)
    tuples = 0
    for second in range(begin + WARM, settings.seconds):
        batch = recording.play(second, second + 1, range(xways))
        tuples += len(batch)
        chain.second(second, batch)
    return {f"{name}_ns_per_tuple": chain.spent[name] / tuples * 1e9 for name in OPERATORS}


class Chain:
    """One instance of each operator, one after the other, and what each of them has spent."""

    def __init__(self) -> None:
        feeder = sources.memory(empty(INPUT), time="time")
        self._program: Program = linear_road(feeder, sinks.discard()).compile()
        self._logics: dict[str, Logic[pa.RecordBatch]] = {
            name: definition.logic(setting) for name, (definition, setting) in self._program.operators.items()
        }
        self.spent = dict.fromkeys(OPERATORS, 0.0)

    def second(self, second: int, batch: pa.RecordBatch) -> None:
        """Works on the tuples of a second, as an epoch."""
        made: dict[Edge, pa.RecordBatch] = {Edge("feeder", "forwarder"): batch}
        for name in OPERATORS:
            inputs = {edge.port: (rows,) for edge, rows in made.items() if edge.downstream == name}
            made |= self._work(name, Piece(second + 1, inputs, second - 1, SlotSet.full(8)))

    def _work(self, name: str, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
        begin = thread_time()
        made = self._logics[name].process(piece)
        self.spent[name] += thread_time() - begin
        return made


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="example: python benchmarks/linear_road_query.py --json"
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object as the last line")
    options = parser.parse_args(arguments)
    measured = run()
    print(table(TARGETS, measured))
    if options.json:
        print(json.dumps({key: round(value, 1) for key, value in measured.items()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
