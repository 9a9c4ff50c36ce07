"""Finds where rows of a text file begin and end, so that reading can stop after any row, and which row is at fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault, UserError
from seep.sources.dialect import Dialect
from seep.sources.files import InputFile

_BOM = b"\xef\xbb\xbf"
_LEAST_BYTES = 1 << 16
_MOST_BYTES = 1 << 26

#: Parses the text of a number of rows. Raises ArrowInvalid.
Parse = Callable[[bytes, int], pa.Table]


@dataclass(frozen=True, slots=True)
class TextRows:
    """Complete rows, with blank lines between and after them."""

    data: bytes
    ends: NDArray[np.int64]  #: the offset after each row that is not blank

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lines(self) -> int:
        return self.data.count(b"\n")

    def first(self, rows: int) -> TextRows:
        """Returns the first rows; if these are all, with the blank lines after them."""
        return self if rows >= len(self) else TextRows(self.data[: self.ends[rows - 1]], self.ends[:rows])

    def between(self, first: int, end: int) -> bytes:
        """Returns the text of some rows, with blank lines before them."""
        return self.data[self.start(first) : self.ends[end - 1]]

    def start(self, row: int) -> int:
        """Returns the offset after the previous row."""
        return int(self.ends[row - 1]) if row else 0


class RowsBegin(NamedTuple):
    """The position where the rows of a file begin, and the header before it."""

    byte: int
    line: int
    header: list[str] | None


def beginning(file: InputFile, dialect: Dialect) -> RowsBegin:
    """Skips a byte order mark and a header; returns where the rows begin."""
    start = len(_BOM) if _bytes(file, 0, len(_BOM)) == _BOM else 0
    row = rows_from(file, start, 1, dialect).first(1)
    try:
        header = dialect.header(row.data) if len(row) else None
    except UnicodeDecodeError as error:
        raise UserError(f"{file.path}, line 1: the header is not UTF-8: {error}") from error
    return RowsBegin(start, 0, None) if header is None else RowsBegin(start + len(row.data), row.lines, header)


def rows_from(file: InputFile, start: int, size: int, dialect: Dialect) -> TextRows:
    """Reads the complete rows in about `size` bytes from `start`; at least one line, if there is one."""
    size = min(max(size, _LEAST_BYTES), _MOST_BYTES)
    while True:
        data = _bytes(file, start, size)
        ends = dialect.row_ends(data)
        is_end = start + len(data) >= file.size
        if is_end and len(data) and (not len(ends) or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        if is_end or len(ends):
            return _without_blanks(data, ends, dialect)
        size *= 2


def first_bad(rows: TextRows, parse: Parse) -> tuple[int, str]:
    """Finds the first row that cannot be parsed, by bisection; returns its line, counted from 1, and the reason."""
    good, bad = 0, len(rows)  # the first `good` rows can be parsed, the first `bad` cannot
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if _problem(parse, rows, good, middle) else (middle, bad)
    row = rows.between(good, bad)
    blank = len(row) - len(row.lstrip(b"\r\n"))
    line = rows.data.count(b"\n", 0, rows.start(good) + blank) + 1
    return line, _problem(parse, rows, good, bad) or "this row cannot be parsed together with those before it"


def _problem(parse: Parse, rows: TextRows, first: int, end: int) -> str | None:
    try:
        parse(rows.between(first, end), end - first)
    except pa.ArrowException as error:
        return str(error)
    return None


def _without_blanks(data: bytes, ends: NDArray[np.int64], dialect: Dialect) -> TextRows:
    if not len(ends):
        return TextRows(b"", ends)
    data = data[: ends[-1]]
    filled = ~dialect.is_blank(np.frombuffer(data, np.uint8))
    starts = np.concatenate([[0], ends[:-1]])
    return TextRows(data, ends[np.logical_or.reduceat(filled, starts)])


def _bytes(file: InputFile, start: int, size: int) -> bytes:
    expected = max(min(size, file.size - start), 0)
    with open(file.path, "rb") as stream:
        stream.seek(start)
        data = stream.read(expected)
    if len(data) < expected:
        raise EnvironmentFault(f"{file.path} has become shorter than it was at the start")
    return data
