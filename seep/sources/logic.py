"""The logic of every source with a reader: keeps positions, watermark and pace, and reads the same rows again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.slots import SlotSet
from primitives.state.own import OwnState
from primitives.state.processing import Containers
from seep.protocol.logic import Reading
from seep.protocol.messages import Positions
from seep.rows.batches import as_batch, concat, conform
from seep.rows.position import MIN_WATERMARK, Position, watermark_of
from seep.rows.rate import Rate
from seep.rows.times import event_times, times_column
from seep.sources.definition import MAX_BYTES, SourceSetting
from seep.sources.pace import Adaptive, FixedEpochs, Paced, ReadPace, ReadPortion
from seep.sources.reader import SourceReader
from seep.sources.time_order import TakenRows, take_in_time_order

Clock = Callable[[], float]

#: Seconds of input that one epoch may always read when a query is behind, even if epochs are short.
_BURST = 0.25
#: The factor by which the remembered size of rows decays per epoch.
_FORGETTING = 0.95


class RowDescription(NamedTuple):
    """The description of a source's rows."""

    schema: pa.Schema
    partitions: int
    time: str | None = None  #: the column with the event time
    lag: int = 0  #: by how much a row may be older than an earlier one of its partition, in units of the watermark
    stamp: str | None = None  #: a column that the reader leaves out: the time when the row was due, in microseconds
    shed: bool = False
    by_time: bool = False  #: whether partitions are read in the order of their event time, not at equal speed


class PartitionedLogic:
    """Reads the partitions of an instance. Slot i is partition i; a slot without a partition has ended at once."""

    def __init__(
        self, setting: SourceSetting, rows: RowDescription, reader: SourceReader, clock: Clock = time.time
    ) -> None:
        self.counters = {"shed": 0}
        self.state = Containers(OwnState("positions", self, slot_bits=setting.slot_bits))
        self._setting = setting
        self._rows = rows
        self._reader = reader
        self._clock = clock
        self._pace = _pace(setting, rows)
        self._read_schema = _without(rows.schema, rows.stamp)
        self._positions: dict[int, Position] = {}
        self._row_bytes = 0.0  #: the largest recent average of an epoch's rows

    # -- SourceLogic --------------------------------------------------------------------------------------------------

    def seek(self, positions: Positions) -> None:
        """See `SourceLogic`."""
        self._positions |= {slot: Position(*position) for slot, position in positions.items()}

    def committed(self, epoch: int) -> None:
        """See `SourceLogic`."""
        self._pace.committed(epoch)

    def read(self, epoch: int, slots: SlotSet) -> Reading[pa.RecordBatch]:
        """See `SourceLogic`. The number of rows depends on the pace, and on the size of earlier rows."""
        now = self._clock()
        is_over = self._setting.until is not None and now >= self._setting.until
        before = {slot: self._position(slot) for slot in slots}
        going = {} if is_over else {slot: position for slot, position in before.items() if not position.ended}
        live = {slot: position._replace(start=position.start or now, at=now) for slot, position in going.items()}
        average = self._averaged(before | live)
        share = sum(slot < self._rows.partitions for slot in slots) / self._rows.partitions
        if self._rows.by_time:
            mine = [average] * round(share * self._rows.partitions)
            portions = self._bound(self._pace.portions(epoch, now, share, mine), share)
            taken = take_in_time_order(live, sum(portion.take for portion in portions), self._take_rows)
        else:
            portions = self._bound(self._pace.portions(epoch, now, share, list(live.values())), share)
            taken = [self._take(*each, portion) for each, portion in zip(live.items(), portions, strict=True)]
        self.counters["shed"] += sum(each.after.shed - live[slot].shed for slot, each in zip(live, taken, strict=True))
        self._positions |= {slot: each.after for slot, each in zip(live, taken, strict=True)}
        self._note(taken, portions, share)
        return self._reading(slots, taken, is_over, average)

    def _bound(self, portions: list[ReadPortion], share: float) -> list[ReadPortion]:
        """Limits the portions to the bytes of an epoch in total, but to no less than one row of each partition."""
        rows = sum(portion.take for portion in portions)
        most = MAX_BYTES * share / self._row_bytes if self._row_bytes else math.inf
        if rows <= most:
            return portions
        return [ReadPortion(each.skip, min(each.take, max(1, int(each.take * most / rows)))) for each in portions]

    def _note(self, taken: Sequence[TakenRows], portions: Sequence[ReadPortion], share: float) -> None:
        counts = [sum(batch.num_rows for batch in each.batches) for each in taken]
        wanted, rows = [portion.take for portion in portions], sum(counts)
        if self._rows.by_time:  # the rows may come from any partition
            counts, wanted = [rows], [sum(wanted)]
        is_full = any(2 * count >= most for count, most in zip(counts, wanted, strict=True))
        self._pace.took(rows, share, is_full)
        if rows:
            nbytes = sum(batch.nbytes for each in taken for batch in each.batches)
            self._row_bytes = max(nbytes / rows, _FORGETTING * self._row_bytes)

    def reread(self, epoch: int, slots: SlotSet, positions: Positions) -> Reading[pa.RecordBatch]:  # noqa: ARG002
        """See `SourceLogic`. Raises EnvironmentFault if it does not find the same rows again."""
        taken = [self._retake(slot, Position(*positions[slot])) for slot in slots]
        average = self._averaged({slot: each.first for slot, each in zip(slots, taken, strict=True)})
        self.seek({slot: positions[slot] for slot in slots})
        return self._reading(slots, taken, is_over=False, average=average)

    # -- positions as state --------------------------------------------------------------------------------------------

    def get_processing_state(self, slots: SlotSet) -> dict[int, list[Any]]:
        """Returns the positions, for the container `positions`."""
        return {slot: list(position) for slot, position in self._positions.items() if slot in slots}

    def set_processing_state(self, state: Mapping[int, list[Any]]) -> None:
        """Takes in positions of slots that arrive."""
        self.seek(state)

    def drop_processing_state(self, slots: SlotSet) -> None:
        """Drops the positions of slots that leave."""
        for slot in [slot for slot in self._positions if slot in slots]:
            del self._positions[slot]
            self._reader.release(slot)

    # -- one partition ------------------------------------------------------------------------------------------------

    def _position(self, slot: int) -> Position:
        if slot >= self._rows.partitions:
            return Position(None, ended=True)
        position = self._positions.get(slot)
        if position is None:
            with _naming(self._setting.operator, slot, "its start"):
                latest = self._reader.earliest(slot) if self._rows.by_time else None
                position = Position(self._reader.start(slot), latest=MIN_WATERMARK if latest is None else latest)
        return position

    def _take_rows(self, slot: int, position: Position, rows: int) -> TakenRows:
        return self._take(slot, position, ReadPortion(0, rows))

    def _take(self, slot: int, position: Position, portion: ReadPortion) -> TakenRows:
        """Reads one block from a position, which may be shorter than the portion."""
        first = self._skip(slot, position, portion.skip)
        if not portion.take:
            return TakenRows([], first, first)
        batch, after = self._block(slot, first, portion.take)
        return TakenRows([batch] if len(batch) else [], first, after)

    def _retake(self, slot: int, target: Position) -> TakenRows:
        """Reads exactly up to a position, in as many blocks as needed."""
        position = self._position(slot)._replace(start=target.start, at=target.at)
        position = first = self._skip(slot, position, target.shed - position.shed)
        batches: list[pa.RecordBatch] = []
        while position.rows < target.rows:
            batch, position = self._block(slot, position, target.rows - position.rows)
            self._check_same(slot, len(batch) > 0)
            batches.append(batch)
        self._check_same(slot, (position.rows, position.latest) == (target.rows, target.latest))
        return TakenRows(batches, first, target)

    def _check_same(self, slot: int, is_same: bool) -> None:
        if not is_same:
            raise EnvironmentFault(
                f"source {self._setting.operator!r}: what it read in partition {slot} is not there again, so an exact "
                "recovery is not possible; its data was changed, or its reader is not repeatable"
            )

    def _skip(self, slot: int, position: Position, rows: int) -> Position:
        if not rows:
            return position
        offset, skipped = self._reader.skip(slot, position.offset, rows)
        return position._replace(offset=offset, shed=position.shed + skipped)

    def _block(self, slot: int, position: Position, limit: int) -> tuple[pa.RecordBatch, Position]:
        with _naming(self._setting.operator, slot, position.offset):
            rows, offset, ended, watermark = self._reader.read(slot, position.offset, limit)
            batch = self._stamped(self._conformed(rows), position)
            latest = max(position.latest, self._latest(batch) if watermark is None else watermark)
        self._check_limit(slot, len(batch), limit)
        return batch, position._replace(offset=offset, rows=position.rows + len(batch), latest=latest, ended=ended)

    def _conformed(self, rows: Any) -> pa.RecordBatch:
        return conform(self._setting.operator, as_batch(self._setting.operator, rows), self._read_schema)

    def _check_limit(self, slot: int, rows: int, limit: int) -> None:
        if rows > limit:
            raise UserError(
                f"source {self._setting.operator!r}: its reader was asked for at most {limit} rows of partition "
                f"{slot}, and gave {rows}; keep to the limit, or the source log cannot tell epochs apart"
            )

    # -- time ---------------------------------------------------------------------------------------------------------

    def _latest(self, batch: pa.RecordBatch) -> int:
        if self._rows.time is None or not len(batch):
            return MIN_WATERMARK
        return int(event_times(batch[self._rows.time]).max())

    def _due(self, position: Position, count: int) -> NDArray[np.float64]:
        """Returns unix times of the next rows: when they were due by the rate; without a rate, when they were read."""
        if self._setting.rate is None:
            return np.full(count, position.at)
        numbers = np.arange(position.passed + 1, position.passed + count + 1) * self._rows.partitions
        return position.start + self._setting.rate.due_times(numbers)

    def _stamped(self, batch: pa.RecordBatch, position: Position) -> pa.RecordBatch:
        if self._rows.stamp is None:
            return batch
        index = self._rows.schema.get_field_index(self._rows.stamp)
        times = (self._due(position, len(batch)) * 1e6).astype(np.int64)
        columns = list(batch.columns)
        columns.insert(index, times_column(times, self._rows.schema.field(index).type))
        return pa.record_batch(columns, schema=self._rows.schema)

    # -- all partitions -----------------------------------------------------------------------------------------------

    def _averaged(self, positions: Mapping[int, Position]) -> Position:
        """Returns the average position of all partitions, from which a rate counts if they are read by time."""
        there = [position for slot, position in positions.items() if slot < self._rows.partitions]
        rows = sum(position.rows for position in there) // max(len(there), 1)
        start = min((position.start for position in there if position.start), default=0.0)
        return Position(None, rows=rows, start=start, at=max((position.at for position in there), default=0.0))

    def _reading(
        self, slots: SlotSet, taken: Sequence[TakenRows], is_over: bool, average: Position
    ) -> Reading[pa.RecordBatch]:
        positions = {slot: self._position(slot) for slot in slots}
        batches = [batch for each in taken for batch in each.batches]
        rows = concat(batches, self._rows.schema)
        firsts = [average if self._rows.by_time else each.first for each in taken if each.batches]
        return Reading(
            dict.fromkeys(self._setting.outputs, rows) if batches else {},
            {slot: list(position) for slot, position in positions.items()},
            watermark_of(positions.values(), self._rows.lag),
            is_over or all(position.ended for position in positions.values()),
            min((float(self._due(first, 1)[0]) for first in firsts), default=0.0),
        )


def _pace(setting: SourceSetting, rows: RowDescription) -> ReadPace:
    if setting.rate is None and math.isinf(setting.epoch_seconds):
        return FixedEpochs(setting.max_rows)
    if setting.rate is None:
        return Adaptive(setting.epoch_seconds, setting.max_rows)
    most = setting.max_rows if rows.shed else min(setting.max_rows, _most_rows(setting.rate, setting.epoch_seconds))
    return Paced(setting.rate, rows.partitions, most, shed=rows.shed)


def _most_rows(rate: Rate, epoch_seconds: float) -> int:
    """Returns the most rows of an epoch: those due in two epochs, so that a query that is behind gets no huge epoch."""
    return max(1, math.ceil(rate.rows_per_second * max(2 * epoch_seconds, _BURST)))


def _without(schema: pa.Schema, column: str | None) -> pa.Schema:
    return schema if column is None else pa.schema([field for field in schema if field.name != column])


@contextmanager
def _naming(operator: str, partition: int, offset: Any) -> Iterator[None]:
    """Adds the source to errors of its reader; for errors that are not our own, also the partition and offset."""
    try:
        yield
    except UserError as error:
        raise UserError(f"source {operator!r}: {error}") from error
    except EnvironmentFault as error:
        raise EnvironmentFault(f"source {operator!r}: {error}") from error
    except SeepError:
        raise
    except OSError as error:
        raise EnvironmentFault(f"source {operator!r} cannot read partition {partition}: {error}") from error
    except Exception as error:
        raise UserError(
            f"source {operator!r} failed in partition {partition} at {offset}: {type(error).__name__}: {error}"
        ) from error
