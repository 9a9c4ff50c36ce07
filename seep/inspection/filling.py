"""The sizes of slots: rows and bytes of each slot, and how evenly they are spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from formats.manifest import chain_of
from seep.inspection.container import StoredContainer
from seep.inspection.stored import Stored

#: Bounds of the histogram, as multiples of the mean.
_BOUNDS = {"up to 1/2 of the mean": 0.5, "up to the mean": 1.0, "up to 2 x the mean": 2.0, "up to 4 x the mean": 4.0}
_EMPTY, _ABOVE = "empty", "more"


@dataclass(frozen=True, slots=True)
class Skew:
    """The skew of a distribution over slots."""

    maximum: float
    mean: float
    gini: float  #: 0 if all slots have the same; near 1 if one slot has everything
    histogram: dict[str, int]  #: the number of slots by size

    @property
    def ratio(self) -> float:
        """The maximum divided by the mean; 1 if all slots are empty."""
        return self.maximum / self.mean if self.mean else 1.0


def skew(weights: NDArray[np.int64]) -> Skew:
    """Returns the skew of weights, one for each slot.

    >>> found = skew(np.array([0, 4, 4, 8]))
    >>> found.ratio, found.gini
    (2.0, 0.375)
    """
    total = float(weights.sum())
    ranks = np.arange(1, len(weights) + 1)
    gini = float(2 * (ranks @ np.sort(weights)) / total - (len(weights) + 1)) / len(weights) if total else 0.0
    mean = total / len(weights)
    return Skew(float(weights.max()), mean, gini, _histogram(weights, mean))


def _histogram(weights: NDArray[np.int64], mean: float) -> dict[str, int]:
    filled = weights[weights > 0]
    places = np.searchsorted(np.array([*_BOUNDS.values()]) * mean, filled)
    counts = np.bincount(places, minlength=len(_BOUNDS) + 1).tolist()
    return {_EMPTY: len(weights) - len(filled), **dict(zip([*_BOUNDS, _ABOVE], counts, strict=True))}


@dataclass(frozen=True, slots=True)
class Filling:
    """The sizes of a container's slots."""

    operator: str
    container: str
    rows: NDArray[np.int64]  #: number of rows of each slot
    nbytes: NDArray[np.int64]  #: bytes of each slot, as data, before compression
    stored: int  #: bytes of the blobs that are read for it
    deltas: int  #: the most deltas that are read for a slot, besides their base

    def largest(self, count: int = 5) -> list[tuple[int, int, int]]:
        """Returns the largest slots that are not empty, with their rows and bytes."""
        order = np.lexsort((np.arange(len(self.nbytes)), -self.nbytes))[:count]
        return [(int(slot), int(self.rows[slot]), int(self.nbytes[slot])) for slot in order if self.rows[slot]]


def stats(stored: Stored, operator: str, container: str | None = None) -> list[Filling]:
    """Returns the sizes of slots, for each container of an operator, or one. It reads all slots, in groups."""
    names = stored.containers(operator) if container is None else [container]
    return [filling(stored.container(operator, name)) for name in names]


def filling(container: StoredContainer) -> Filling:
    """Returns the sizes of a container's slots; reads them in groups."""
    size = 1 << container.like.slot_bits
    rows, nbytes = np.zeros(size, np.int64), np.zeros(size, np.float64)
    for chunk in container.pieces():
        slots = chunk.slots_of_rows()
        rows += np.bincount(slots, minlength=size)
        nbytes += np.bincount(slots, weights=row_bytes(chunk.rows), minlength=size)
    chain = chain_of(container.blobs, container.all_slots)
    stored = chain.base_bytes + chain.delta_bytes
    return Filling(
        container.operator, container.name, rows, np.rint(nbytes).astype(np.int64), stored, deltas=chain.deltas
    )


def row_bytes(batch: pa.RecordBatch) -> NDArray[np.float64]:
    """Returns the bytes of each row.

    >>> row_bytes(pa.record_batch({"n": pa.array([1, 2], pa.int32()), "word": ["be", None]})).tolist()
    [10.0, 8.0]
    """
    total = np.zeros(len(batch))
    for column in batch.columns:
        total += _value_bytes(column)
    return total


def _value_bytes(column: pa.Array) -> NDArray[np.float64] | float:
    """Returns the bytes of each value: for text, its length and an offset; for nested values, an equal share of all."""
    kind = column.type
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return np.asarray(lengths, np.float64) + (8 if kind in (pa.large_string(), pa.large_binary()) else 4)
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        return float(kind.bit_width / 8)
    return float(column.nbytes / max(len(column), 1))
