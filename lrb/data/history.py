"""Reads and writes the tolls that vehicles paid on earlier days, for expenditure queries (section 8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lrb.data.tables import written
from lrb.schema import HISTORY
from primitives.errors import UserError

DAYS = 69  #: day 1 is yesterday

_VEHICLES_AT_ONCE = 1 << 12

Ints = NDArray[np.int64]

#: Bits of a packed key for the day, and for the expressway.
_DAY_BITS, _XWAY_BITS = 7, 16
_VID_LIMIT = 1 << (63 - _DAY_BITS - _XWAY_BITS)


class TollHistory(Protocol):
    """A source of past tolls."""

    def tolls(self, vid: Ints, day: Ints, xway: Ints) -> Ints:
        """Returns the total toll of each vehicle, day and expressway; 0 if there is none, or no such day."""


class DefaultHistory:
    """The function that stands for a missing file of tolls (8.2)."""

    def tolls(self, vid: Ints, day: Ints, xway: Ints) -> Ints:
        """Computes the tolls with the function of the spec.

        >>> DefaultHistory().tolls(np.array([7, 7]), np.array([2, 70]), np.array([1, 1])).tolist()
        [60, 0]
        """
        vid, day, xway = (np.asarray(each, dtype=np.int64) for each in (vid, day, xway))
        return np.where(_is_day(day), (31 * vid + 17 * day + 7 * xway) % 99, 0)


class StoredHistory:
    """The tolls of a table, as sums by key."""

    def __init__(self, table: pa.Table) -> None:
        vid, day, xway, toll = (table[name].to_numpy().astype(np.int64) for name in HISTORY.names)
        fits = _fits(vid, day, xway)
        self._keys, group = np.unique(_packed(vid, day, xway)[fits], return_inverse=True)
        self._sums = np.zeros(len(self._keys), np.int64)
        np.add.at(self._sums, group, toll[fits])

    def tolls(self, vid: Ints, day: Ints, xway: Ints) -> Ints:
        """Returns the tolls of the table.

        >>> table = pa.table({"vid": [7, 7, 8], "day": [2, 2, 1], "xway": [1, 1, 0], "toll": [5, 6, 9]})
        >>> StoredHistory(table).tolls(np.array([7, 8, 9]), np.array([2, 1, 1]), np.array([1, 1, 0])).tolist()
        [11, 0, 0]
        """
        vid, day, xway = (np.asarray(each, dtype=np.int64) for each in (vid, day, xway))
        if not len(self._keys):
            return np.zeros(len(vid), np.int64)
        wanted = _packed(vid, day, xway)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(_fits(vid, day, xway) & (self._keys[at] == wanted), self._sums[at], 0)


def history_of(path: Path | None) -> TollHistory:
    """Returns the history in a file, or the default one."""
    return DefaultHistory() if path is None else StoredHistory(read_history(path))


def read_history(path: Path) -> pa.Table:
    """Reads the table from a CSV file without a header (`VID,Day,XWay,Toll`), or from a Parquet file."""
    if not path.is_file():
        raise UserError(f"there is no history file {path}")
    try:
        if path.suffix == ".parquet":
            return pq.read_table(path, columns=HISTORY.names).cast(HISTORY)
        return pa_csv.read_csv(
            path,
            pa_csv.ReadOptions(column_names=HISTORY.names),
            convert_options=pa_csv.ConvertOptions(column_types=HISTORY, null_values=[]),
        )
    except (pa.ArrowInvalid, ValueError) as reason:
        raise UserError(f"{path} is no history, whose lines are VID,Day,XWay,Toll: {reason}") from reason


def write_history(
    path: Path, vehicles: int, xways: int, seed: int, reach: Callable[[int, int], None] = lambda _, __: None
) -> int:
    """Writes one row for each day of vehicles 1 to `vehicles`, on random expressways; returns the number of rows.

    The tolls are 0 to 98. Equal arguments give equal files. Tells `reach` of how many vehicles the rows are written.
    """
    random = np.random.default_rng(seed)
    with written(path, HISTORY) as write:
        for first in range(1, vehicles + 1, _VEHICLES_AT_ONCE):
            end = min(first + _VEHICLES_AT_ONCE, vehicles + 1)
            write(_some_history(np.arange(first, end), xways, random))
            reach(end - 1, vehicles)
    return vehicles * DAYS


def _some_history(vids: Ints, xways: int, random: np.random.Generator) -> pa.RecordBatch:
    vid, day = np.repeat(vids, DAYS), np.tile(np.arange(1, DAYS + 1, dtype=np.int32), len(vids))
    columns = [vid, day, random.integers(0, xways, len(vid), np.int32), random.integers(0, 99, len(vid))]
    return pa.record_batch([pa.array(each) for each in columns], schema=HISTORY)


def _is_day(day: Ints) -> NDArray[np.bool_]:
    return (day >= 1) & (day <= DAYS)


def _fits(vid: Ints, day: Ints, xway: Ints) -> NDArray[np.bool_]:
    """Whether each key is in range, so that its packed form is unique."""
    return _is_day(day) & (vid >= 0) & (vid < _VID_LIMIT) & (xway >= 0) & (xway < 1 << _XWAY_BITS)


def _packed(vid: Ints, day: Ints, xway: Ints) -> Ints:
    return (vid << (_DAY_BITS + _XWAY_BITS)) | (day << _XWAY_BITS) | xway
