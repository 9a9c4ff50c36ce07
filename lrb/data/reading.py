"""Reads input files (CSV or Parquet) as batches; malformed tuples go to a file of dead letters."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lrb.data.checking import Checker, Problem
from lrb.data.lines import parse
from lrb.schema import INPUT
from primitives.errors import EnvironmentFault, UserError
from primitives.state.columnar.fixed import storage_type

Ints = NDArray[np.int64]

_BLOCK_BYTES = 8 << 20
_BLOCK_ROWS = 1 << 17
#: The stand-in for a null of a Parquet file, which no valid field has.
_NULL = -(1 << 62)


class DeadLetters:
    """Counts the lines that are left out, and writes them with number and reason to a file, if one is given.

    The file is created with the first of them.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.counts: Counter[Problem] = Counter()
        self.path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self.path is not None:
            self.path.unlink(missing_ok=True)  # an earlier run's file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, line: int, problem: Problem, text: str) -> None:
        """Adds one line; line numbers start at 1."""
        self.counts[problem] += 1
        if self._file is None and self.path is not None:
            self._file = _begun(self.path)
        if self._file is not None:
            csv.writer(self._file).writerow([line, problem.words, text])

    def summary(self) -> str:
        """Returns a one-line summary.

        >>> letters = DeadLetters()
        >>> letters.add(3, Problem.TYPE, "9,9"), letters.summary()
        (None, '1 line left out: 1 unknown type')
        """
        lines = f"{self.total:,} line{'' if self.total == 1 else 's'} left out"
        return f"{lines}: " + "; ".join(f"{count:,} {problem.words}" for problem, count in sorted(self.counts.items()))


def _begun(path: Path) -> TextIO:
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as reason:
        raise EnvironmentFault(f"dead letters cannot be written to {path}: {reason.strerror}") from reason
    csv.writer(file).writerow(["line", "problem", "text"])
    return file


def read(path: Path, dead_letters: DeadLetters, *, lateness: int = 0) -> Iterator[pa.RecordBatch]:
    """Returns the well-formed tuples of a file, in order.

    No tuple is more than `lateness` seconds older than any before it. All other lines (or rows, in Parquet) are added
    to the dead letters by their number.
    """
    if not path.is_file():
        raise UserError(f"there is no input file {path}")
    read_file = _read_parquet if path.suffix == ".parquet" else _read_csv
    yield from read_file(path, dead_letters, Checker(lateness))


# --- CSV --------------------------------------------------------------------------------------------------------------


def _read_csv(path: Path, dead_letters: DeadLetters, checker: Checker) -> Iterator[pa.RecordBatch]:
    first = 1
    with path.open("rb") as file:
        for text in _blocks(file):
            numbers, found, starts = parse(text, len(INPUT))
            problems = checker.check(numbers, found)
            for row in np.flatnonzero(problems):
                line = text[starts[row] : starts[row + 1]].decode(errors="replace").rstrip("\r\n")
                dead_letters.add(first + int(row), Problem(problems[row]), line)
            yield _batch(numbers, problems)
            first += len(found)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Returns the content of the file, in blocks that end with a line."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += tail
    if rest:
        yield rest


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, dead_letters: DeadLetters, checker: Checker) -> Iterator[pa.RecordBatch]:
    first = 1
    with _opened(path) as file:
        for batch in file.iter_batches(_BLOCK_ROWS, columns=INPUT.names):
            numbers = _numbers(batch)
            problems = checker.check(numbers, np.zeros(len(batch), np.uint8))
            for row in np.flatnonzero(problems):
                fields = (str(value) for value in numbers[:, row].tolist())
                dead_letters.add(first + int(row), Problem(problems[row]), ",".join(fields).replace(str(_NULL), ""))
            yield _batch(numbers, problems)
            first += len(batch)


def _opened(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as reason:
        raise UserError(f"{path} is no Parquet file: {reason}") from reason
    kinds = {field.name: field.type for field in file.schema_arrow}
    wrong = [name for name in INPUT.names if name not in kinds or not pa.types.is_integer(kinds[name])]
    if wrong:
        raise UserError(f"{path} needs the columns {', '.join(INPUT.names)}, of whole numbers; look at {wrong[0]}")
    return file


def _numbers(batch: pa.RecordBatch) -> Ints:
    columns = (batch[name].cast(pa.int64(), safe=False) for name in INPUT.names)
    return np.stack([pc.fill_null(column, _NULL).to_numpy() for column in columns])


# --- both -------------------------------------------------------------------------------------------------------------


def _batch(numbers: Ints, problems: NDArray[np.uint8]) -> pa.RecordBatch:
    well = slice(None) if not problems.any() else problems == Problem.NONE
    columns = [
        pa.array(numbers[row][well].astype(storage_type(field.type), copy=False)) for row, field in enumerate(INPUT)
    ]
    return pa.record_batch(columns, schema=INPUT)
