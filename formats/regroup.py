"""Groups the rows of a batch, in one pass over each column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from formats.column_bytes import layout_of
from primitives.errors import InternalError
from primitives.kernels import kernel
from primitives.routing import take_rows
from primitives.state.columnar.fixed import read_only
from primitives.state.columnar.intrinsics import pointer

Ints = NDArray[Any]


def sizes_of(numbers: NDArray[np.uint32] | NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Returns the number of occurrences of each of 0, 1, 2 … below `count`, which is above all numbers.

    >>> sizes_of(np.array([2, 0, 2], np.uint32), 4).tolist()
    [1, 0, 2, 0]
    """
    sizes = np.zeros(count, np.int64)
    _count(numbers, sizes)
    return sizes


def regrouped(batch: pa.RecordBatch, groups: NDArray[np.int32], sizes: NDArray[np.int64]) -> pa.RecordBatch:
    """Returns the rows ordered by group, and within a group in their own order; `sizes` are the sizes of the groups.

    A group is written at consecutive places, which stay in the processor's cache: this is several times as fast as
    fetching rows from all over the batch. A single group gets the same batch.

    >>> batch = pa.record_batch({"word": ["a", "b", "c", "d"]})
    >>> regrouped(batch, np.array([1, 0, 1, 0], np.int32), np.array([2, 2])).column("word").to_pylist()
    ['b', 'd', 'a', 'c']
    """
    if sizes.sum() != len(batch) or len(groups) != len(batch):
        raise InternalError(f"{len(groups)} rows in groups of {sizes.sum()} are no batch of {len(batch)}")
    if np.count_nonzero(sizes) <= 1:
        return batch
    places = np.empty(len(batch), np.int64 if len(batch) >> 31 else np.int32)
    _find_places(groups, np.cumsum(sizes) - sizes, places)
    columns = [_moved(field, column, places) for field, column in zip(batch.schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _moved(field: pa.Field, column: pa.Array, places: Ints) -> pa.Array:
    """Returns the column with each row at its place."""
    if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
        return _move_texts(column, places, np.int32)
    if pa.types.is_large_string(field.type) or pa.types.is_large_binary(field.type):
        return _move_texts(column, places, np.int64)
    if layout_of(field.type).name == "values" and field.type.bit_width in (8, 16, 32, 64):
        return _move_values(column, places)
    return _taken(field, column, places)


def _taken(field: pa.Field, column: pa.Array, places: Ints) -> pa.Array:
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return take_rows(pa.record_batch([column], schema=pa.schema([field])), order).column(0)


def _move_values(column: pa.Array, places: Ints) -> pa.Array:
    kind = np.dtype(f"u{column.type.bit_width // 8}")
    values = np.frombuffer(column.buffers()[1], kind)[column.offset :][: len(column)]
    return pa.Array.from_buffers(column.type, len(column), [_validity(column, places), _scattered(values, places)])


def _scattered(values: NDArray[Any], places: Ints) -> pa.Buffer:
    moved = np.empty_like(values)
    _scatter(read_only(values), places, moved)
    return pa.py_buffer(moved)


def _validity(column: pa.Array, places: Ints) -> pa.Buffer | None:
    if not column.null_count:
        return None
    moved = np.empty(len(column), np.uint8)
    _scatter(read_only(column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)), places, moved)
    return pa.py_buffer(np.packbits(moved, bitorder="little"))


def _move_texts(column: pa.Array, places: Ints, kind: type[np.signedinteger[Any]]) -> pa.Array:
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, kind)[column.offset :][: len(column) + 1]
    moved_starts, moved = np.zeros(len(starts), kind), np.empty(int(starts[-1]) - int(starts[0]), np.uint8)
    _scatter_texts(read_only(starts), read_only(np.frombuffer(data or b"", np.uint8)), places, moved_starts, moved)
    buffers = [_validity(column, places), pa.py_buffer(moved_starts), pa.py_buffer(moved)]
    return pa.Array.from_buffers(column.type, len(column), buffers)


def warm_up() -> None:
    """Compiles the kernels for most batches, or loads them from Numba's cache, so that the first need not wait."""
    kinds = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.large_string())
    batch = pa.record_batch([pa.array([1, None, 2]).cast(kind) for kind in kinds], names=list(map(str, kinds)))
    sizes_of(np.zeros(1, np.uint32), 1)
    regrouped(batch, np.array([1, 0, 1], np.int32), np.array([1, 2]))


# --- compiled ---------------------------------------------------------------------------------------------------------


@kernel
def _count(numbers: Ints, sizes: NDArray[np.int64]) -> None:
    for number in numbers:
        sizes[number] += 1


@kernel
def _find_places(groups: NDArray[np.int32], nexts: NDArray[np.int64], places: Ints) -> None:
    """Writes the place of each row, given the place of each group's first row."""
    for row in range(len(groups)):
        group = groups[row]
        places[row] = nexts[group]
        nexts[group] += 1


@kernel
def _scatter(values: NDArray[Any], places: Ints, moved: NDArray[Any]) -> None:
    for row in range(len(places)):
        moved[places[row]] = values[row]


@kernel
def _scatter_texts(
    starts: Ints, data: NDArray[np.uint8], places: Ints, moved_starts: Ints, moved: NDArray[np.uint8]
) -> None:
    for row in range(len(places)):
        moved_starts[places[row] + 1] = starts[row + 1] - starts[row]
    for row in range(len(places)):
        moved_starts[row + 1] += moved_starts[row]
    source, target = pointer(data), pointer(moved)
    for row in range(len(places)):
        copy_bytes(target, moved_starts[places[row]], source, starts[row], starts[row + 1] - starts[row])


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(_typing: Any, target: Any, _at: Any, source: Any, _start: Any, _length: Any) -> Any:
    """copy_bytes(target, at, source, start, length): copies `length` bytes from one pointer to another."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, at, source, start, length = arguments
        cgutils.raw_memcpy(builder, builder.gep(target, [at]), builder.gep(source, [start]), length, 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate
