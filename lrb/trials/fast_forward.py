"""Works through the hours before a trial in this process, as fast as possible, to get their state."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lrb.generator import TrafficSettings, gathered, traffic
from lrb.query.beginning import InitialState
from lrb.schema import INPUT
from lrb.trials.chain import LocalChain

#: Tuples of an epoch: many, as each epoch costs something by itself.
_ROWS = 1 << 16
_TRAFFIC = "traffic.arrow"


class Rest(NamedTuple):
    """What is left to be played of the traffic of one expressway: a file of tuples."""

    path: Path
    vehicles: int  #: a limit of their ids, in the part before too

    def beginning(self, xways: int) -> InitialState:
        """What so many expressways know by then."""
        return InitialState(self.path.parent, xways, self.vehicles)


def fast_forward(settings: TrafficSettings, until: int, folder: Path) -> Rest:
    """Takes one expressway to a second of its traffic: writes what operators know then, and all tuples from it on."""
    chain, vehicles, path = LocalChain(), 0, folder / _TRAFFIC
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, INPUT) as writer:
        for batch in gathered(traffic(settings), _ROWS):
            vehicles = max(vehicles, 1 + int(pc.max(batch["vid"]).as_py()))
            at = int(np.searchsorted(batch["time"].to_numpy(), until))
            _work(chain, batch.slice(0, at))
            writer.write_batch(batch.slice(at))
    chain.process(pa.RecordBatch.from_pylist([], INPUT), until - 1)  # what still waits for that second to be over
    rest = Rest(path, vehicles)
    rest.beginning(1).write(chain.beginning())
    return rest


def _work(chain: LocalChain, tuples: pa.RecordBatch) -> None:
    if len(tuples):
        chain.process(tuples, tuples["time"][-1].as_py() - 1)
