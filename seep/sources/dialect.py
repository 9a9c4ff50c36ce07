"""Dialect: what is particular about a format of text files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Dialect(ABC):
    """How rows, headers and values are written; it travels with the source."""

    suffixes: Sequence[str]

    @abstractmethod
    def row_ends(self, data: bytes) -> NDArray[np.int64]:
        """The bytes after the line feeds that end rows."""

    @abstractmethod
    def is_blank(self, view: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which bytes do not make a line a row."""

    @abstractmethod
    def header(self, row: bytes) -> list[str] | None:
        """The names of the columns in the first row of a file, if it is not a row of data."""

    @abstractmethod
    def parse(self, data: bytes, schema: pa.Schema, header: list[str] | None) -> pa.Table:
        """Whole rows as a table of these columns. Raises ArrowInvalid."""

    @abstractmethod
    def infer(self, data: bytes, header: list[str] | None) -> pa.Schema:
        """The columns of a sample. Raises ArrowInvalid."""
