"""Live traffic: replays the recording of one expressway on many, in real time or faster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lrb.generator import Recording, TrafficSettings, traffic
from lrb.query.columns import DUE
from lrb.schema import INPUT
from primitives.slots import SlotSet
from seep.protocol.logic import Reading
from seep.rows.batches import concat, empty
from seep.rows.rate import Rate
from seep.sources.base import ReaderDefinition
from seep.sources.definition import SourceSetting
from seep.sources.logic import Clock, PartitionedLogic, RowDescription
from seep.sources.reader import Block, SourceReader

#: The most seconds of traffic replayed at once; and the factor of tuples replayed for a read.
_PLAYED, _AHEAD = 4, 4


def record(settings: TrafficSettings, path: Path) -> None:
    """Writes the traffic of one expressway to a file, which every instance of the feeder reads."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, INPUT) as writer:
        for batch in traffic(settings):
            writer.write_batch(batch)


def recorded(path: Path, vehicles: int | None = None) -> Recording:
    """Reads the recording from the file; `vehicles` as for `Recording`."""
    with pa.ipc.open_file(pa.memory_map(str(path))) as file:
        return Recording((file.get_batch(at) for at in range(file.num_record_batches)), vehicles)


@dataclass(frozen=True, slots=True)
class TrafficRate(Rate):
    """The rate of traffic: tuples are spread evenly over each second; `speed` of these take one real second."""

    totals: tuple[int, ...] = (0,)  #: number of tuples before each second, from `first` on
    speed: float = 1.0
    first: int = 0  #: the first second

    @classmethod
    def of(cls, recording: Recording, xways: int, speed: float) -> TrafficRate:
        """Returns the rate of a recording on this number of expressways."""
        first = recording.first
        counts = [xways * recording.rows(second, second + 1) for second in range(first, recording.seconds)]
        return cls(rows_per_second=speed * max(counts), totals=(0, *accumulate(counts)), speed=speed, first=first)

    def rows_due_at(self, seconds: NDArray[Any]) -> NDArray[np.float64]:
        """See `Rate`."""
        rows: NDArray[np.float64] = np.interp(seconds * self.speed, np.arange(len(self.totals)), self.totals)
        return rows

    def due_times(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """See `Rate`."""
        seconds: NDArray[np.float64] = np.interp(rows, self.totals, np.arange(len(self.totals)))
        return seconds / self.speed


class LiveFeeder(ReaderDefinition):
    """The source, with one partition, because tuples are ordered by time; each tuple has the time at which it was due.

    It reads nothing in the epochs up to `held`, so that all other instances have started before the clock does.
    """

    stamp = DUE

    def __init__(self, path: Path, xways: int, *, vehicles: int | None = None, held: int = 0) -> None:
        super().__init__("time", 0)
        self._path = path
        self._xways = xways
        self._vehicles = vehicles
        self._held = held

    @property
    def schema(self) -> pa.Schema:
        return INPUT.append(pa.field(DUE, pa.int64(), nullable=False))

    @property
    def partitions(self) -> int:
        return 1

    def reader(self) -> SourceReader:
        return Player(recorded(self._path, self._vehicles), self._xways)

    def logic(self, setting: SourceSetting, clock: Clock = time.time) -> PartitionedLogic:
        """See `SourceDefinition.logic`."""
        rows = RowDescription(self.schema, self.partitions, self.time, stamp=self.stamp)
        return WaitingLogic(setting, rows, self.reader(), clock, self._held)


class WaitingLogic(PartitionedLogic):
    """Reads nothing up to an epoch; its clock starts after that."""

    def __init__(
        self, setting: SourceSetting, rows: RowDescription, reader: SourceReader, clock: Clock, held: int
    ) -> None:
        super().__init__(setting, rows, reader, clock)
        self._held = held

    def read(self, epoch: int, slots: SlotSet) -> Reading[pa.RecordBatch]:
        """See `SourceLogic`."""
        if epoch > self._held:
            return super().read(epoch, slots)
        return self.reread(epoch, slots, {slot: list(self._position(slot)) for slot in slots})


class Player(SourceReader):
    """Replays a recording; offsets are tuple numbers. Keeps the last replayed block, to cut blocks from it."""

    def __init__(self, recording: Recording, xways: int) -> None:
        self._recording = recording
        self._xways = xways
        counts = [recording.rows(0, second) for second in range(recording.seconds + 1)]
        self._starts = np.array(counts) * xways
        self._first = self._end = 0  #: range of the replayed rows
        self._rows = empty(INPUT)

    def read(self, partition: int, offset: int, limit: int) -> Block:  # noqa: ARG002
        """See `SourceReader`."""
        end = min(offset + limit, int(self._starts[-1]))
        blocks, at = [], offset
        while at < end:
            if not self._first <= at < self._end:
                self._play(at, _AHEAD * (end - at))
            blocks.append(self._rows.slice(at - self._first, end - at))
            at += len(blocks[-1])
        return Block(concat(blocks, INPUT), at, at >= self._starts[-1])

    def _play(self, offset: int, wanted: int) -> None:
        """Replays about `wanted` tuples: some expressways of a second, or whole seconds if these have few tuples."""
        second = int(np.searchsorted(self._starts, offset, side="right")) - 1
        start, end = self._starts[second : second + 2]
        if wanted < end - start:
            self._play_some(second, offset - int(start), wanted)
            return
        last = int(np.searchsorted(self._starts, offset + wanted, side="right")) - 1
        last = min(max(last, second + 1), second + _PLAYED, self._recording.seconds)
        self._rows = self._recording.play(second, last, range(self._xways))
        self._first, self._end = int(start), int(self._starts[last])

    def _play_some(self, second: int, within: int, wanted: int) -> None:
        """Replays some expressways of a second: its tuples are ordered by expressway, and each has the same number."""
        each = self._recording.rows(second, second + 1)
        first = within // each
        last = min(first + -(-wanted // each) + 1, self._xways)
        self._rows = self._recording.play(second, second + 1, range(first, last))
        start = int(self._starts[second])
        self._first, self._end = start + first * each, start + last * each


def paced(path: Path, xways: int, speed: float) -> tuple[LiveFeeder, TrafficRate]:
    """Returns the source of a live run, and its rate."""
    return LiveFeeder(path, xways), TrafficRate.of(recorded(path), xways, speed)
