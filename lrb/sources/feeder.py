"""The feeder: a source on a file of well-formed tuples, which can be read from any position."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from lrb.data.reading import DeadLetters, read
from lrb.schema import INPUT
from primitives.errors import UserError
from seep import sources
from seep.rows.batches import concat
from seep.sources.definition import SourceDefinition
from seep.sources.reader import Block, SourceReader


def prepare(input: Path, prepared: Path, dead_letters: DeadLetters, lateness: int = 0) -> int:
    """Copies the well-formed tuples of an input file to a file that is memory-mapped; returns their number.

    So lines are checked once, and not again by each instance that continues after a failure.
    """
    count = 0
    with pa.OSFile(str(prepared), "wb") as file, pa.ipc.new_file(file, INPUT) as writer:
        for batch in read(input, dead_letters, lateness=lateness):
            writer.write_batch(batch)
            count += len(batch)
    return count


def feeder(prepared: Path, lateness: int = 0) -> SourceDefinition:
    """Returns the source. It has one partition, because tuples are ordered by time."""
    return sources.custom(partial(Prepared, str(prepared.absolute())), INPUT, time="time", out_of_order=lateness)


class Prepared(SourceReader):
    """Reads the prepared file; offsets are row numbers."""

    def __init__(self, path: str) -> None:
        try:
            with pa.ipc.open_file(pa.memory_map(path)) as file:
                self._rows = file.read_all()
        except FileNotFoundError:
            raise UserError(f"there is no file {path}; it must be seen under this path from all machines") from None

    def read(self, partition: int, offset: int, limit: int) -> Block:  # noqa: ARG002
        """See `SourceReader`."""
        rows = concat(self._rows.slice(offset, limit).to_batches(), INPUT)
        return Block(rows, offset + len(rows), offset + len(rows) >= len(self._rows))
