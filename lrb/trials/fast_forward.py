"""Processes the hours before a trial in this process, as fast as possible, to compute the initial state."""

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

#: Tuples in an epoch: many, because each epoch has a fixed cost.
_ROWS = 1 << 16
_TRAFFIC = "traffic.arrow"


class Rest(NamedTuple):
    """The rest of the traffic of one expressway: a file of tuples."""

    path: Path
    vehicles: int  #: upper limit of vehicle ids, including the part before

    def beginning(self, xways: int) -> InitialState:
        """Returns the initial state for this number of expressways."""
        return InitialState(self.path.parent, xways, self.vehicles)


def fast_forward(settings: TrafficSettings, until: int, folder: Path) -> Rest:
    """Processes the traffic of one expressway before a second; writes the operators' state and the remaining tuples."""
    chain, vehicles, path = LocalChain(), 0, folder / _TRAFFIC
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, INPUT) as writer:
        for batch in gathered(traffic(settings), _ROWS):
            vehicles = max(vehicles, 1 + int(pc.max(batch["vid"]).as_py()))
            at = int(np.searchsorted(batch["time"].to_numpy(), until))
            _work(chain, batch.slice(0, at))
            writer.write_batch(batch.slice(at))
    chain.process(pa.RecordBatch.from_pylist([], INPUT), until - 1)  # rows that wait for the end of that second
    rest = Rest(path, vehicles)
    rest.beginning(1).write(chain.beginning())
    return rest


def _work(chain: LocalChain, tuples: pa.RecordBatch) -> None:
    if len(tuples):
        chain.process(tuples, tuples["time"][-1].as_py() - 1)
