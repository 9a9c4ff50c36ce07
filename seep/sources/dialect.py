"""The base of dialects: the rules of a format of text files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Dialect(ABC):
    """How rows, headers and values are written; it is sent to the nodes with the source."""

    suffixes: Sequence[str]

    @abstractmethod
    def row_ends(self, data: bytes) -> NDArray[np.int64]:
        """Returns the offsets after the line feeds that end rows."""

    @abstractmethod
    def is_blank(self, view: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Says which bytes are blank: a line of blank bytes only is not a row."""

    @abstractmethod
    def header(self, row: bytes) -> list[str] | None:
        """Returns the column names in the first row of a file; None if that is a row of data."""

    @abstractmethod
    def parse(self, data: bytes, schema: pa.Schema, header: list[str] | None) -> pa.Table:
        """Parses complete rows to a table of these columns. Raises ArrowInvalid."""

    @abstractmethod
    def infer(self, data: bytes, header: list[str] | None) -> pa.Schema:
        """Infers the columns from a sample. Raises ArrowInvalid."""
