"""The base of sources that are made of a reader and a description of their rows."""

from __future__ import annotations

import time as clocks
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from primitives.errors import UserError
from seep.rows.times import Duration, is_event_time, length
from seep.sources.definition import SourceDefinition, SourceSetting
from seep.sources.logic import Clock, PartitionedLogic, RowDescription
from seep.sources.reader import SourceReader


class ReaderDefinition(SourceDefinition):
    """A source with a reader; a subclass knows its columns and partitions, and makes readers."""

    #: A column for the time when the row was due, which readers leave out.
    stamp: str | None = None
    #: Whether rows are skipped if more are overdue than an epoch can hold.
    shed = False

    def __init__(self, time: str | None, out_of_order: Duration) -> None:
        self._time = time
        self._out_of_order = out_of_order

    @property
    def time(self) -> str | None:
        return self._time

    @abstractmethod
    def reader(self) -> SourceReader:
        """Makes a reader for one instance."""

    def check_data(self) -> None:
        """Raises UserError, without the operator's name, if the outside data is missing or not as described."""

    def check(self, operator: str) -> None:
        with naming(operator):
            self.check_data()
            self._lag()

    def logic(self, setting: SourceSetting, clock: Clock = clocks.time) -> PartitionedLogic:
        with naming(setting.operator):
            rows = RowDescription(
                self.schema, self.partitions, self.time, self._lag(), self.stamp, self.shed, self.by_time
            )
        return PartitionedLogic(setting, rows, self.reader(), clock)

    def _lag(self) -> int:
        """Returns by how much a row may be older than an earlier one, in units of the watermark."""
        if self._time is None:
            if self._out_of_order != 0:
                raise UserError("out_of_order= is given without time=; name the column with the event time")
            return 0
        kind = self._time_type(self._time)
        lag = 0 if self._out_of_order == 0 else length(self._out_of_order, kind)
        if lag < 0:
            raise UserError(f"out_of_order={self._out_of_order!r} is negative; say by how much rows may come late")
        return lag

    def _time_type(self, time: str) -> object:
        index = self.schema.get_field_index(time)
        if index < 0:
            raise UserError(f"there is no column {time!r} for time=; the columns are {', '.join(self.schema.names)}")
        kind = self.schema.field(index).type
        if not is_event_time(kind):
            raise UserError(
                f"the time column {time!r} is of type {kind}; use a column of integers or timestamps, or convert it in "
                "an operator and name it there"
            )
        return kind


@contextmanager
def naming(operator: str) -> Iterator[None]:
    """Adds the name of the source to a UserError in the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"source {operator!r}: {error}") from error


def check_partitions(partitions: int) -> int:
    """Returns the number of partitions; raises UserError if it is less than one."""
    if partitions < 1:
        raise UserError(f"partitions={partitions!r}; a source has at least one")
    return partitions
