"""SpillStore: buffer state beyond its memory budget, one Arrow IPC file per epoch, mapped back without a copy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from primitives.errors import EnvironmentFault, InternalError

P = TypeVar("P")
Batches = Mapping[str, pa.RecordBatch]

_METADATA = b"seep.metadata"
_SUFFIX = ".arrow"
#: Suffix of unfinished files.
_PARTIAL = ".partial"


@dataclass(frozen=True)
class SpillCodec(Generic[P]):
    """Converts a payload to named Arrow batches with JSON metadata, and back.

    >>> words = SpillCodec[list[str]](
    ...     to_batches=lambda payload: ({"words": pa.record_batch({"word": payload})}, {}),
    ...     from_batches=lambda batches, metadata: batches["words"]["word"].to_pylist(),
    ... )
    >>> words.from_batches(*words.to_batches(["a", "b"]))
    ['a', 'b']
    """

    to_batches: Callable[[P], tuple[Batches, Mapping[str, object]]]
    from_batches: Callable[[dict[str, pa.RecordBatch], dict[str, object]], P]


def pack_batches(batches: Batches, metadata: Mapping[str, object]) -> pa.RecordBatch:
    """Puts batches of different schemas and lengths into one batch of one row, without copying.

    A batch becomes a column, and that column's one value is the list of the batch's rows.

    >>> left, right = pa.record_batch({"n": [1, 2]}), pa.record_batch({"w": ["a"]})
    >>> packed = pack_batches({"left": left, "right": right}, {"origin": "count[0]"})
    >>> packed.to_pylist()
    [{'left': [{'n': 1}, {'n': 2}], 'right': [{'w': 'a'}]}]
    >>> batches, metadata = unpack_batches(packed)
    >>> batches["right"].to_pylist(), metadata
    ([{'w': 'a'}], {'origin': 'count[0]'})
    """
    columns = [_as_one_list(batch) for batch in batches.values()]
    fields = [
        pa.field(name, column.type, metadata=batch.schema.metadata)
        for (name, batch), column in zip(batches.items(), columns, strict=True)
    ]
    schema = pa.schema(fields, metadata={_METADATA: json.dumps(metadata).encode()})
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def unpack_batches(packed: pa.RecordBatch) -> tuple[dict[str, pa.RecordBatch], dict[str, object]]:
    """The batches and metadata that `pack_batches` was given, as views of the packed batch."""
    batches = {
        field.name: pa.RecordBatch.from_struct_array(column.values).replace_schema_metadata(field.metadata)
        for field, column in zip(packed.schema, packed.columns, strict=True)
    }
    return batches, json.loads(packed.schema.metadata[_METADATA])


def _as_one_list(batch: pa.RecordBatch) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array([0, batch.num_rows], pa.int64()), batch.to_struct_array())


class SpillStore(Generic[P]):
    """Keeps payloads by epoch as files of a directory that belongs to this store alone.

    The files serve a living process only (after a crash, buffer state comes from a checkpoint): what a predecessor left
    in the directory is removed when the store opens, and nothing is left when it closes.

    >>> import tempfile
    >>> codec = SpillCodec(lambda payload: (payload, {}), lambda batches, _: batches)
    >>> store = SpillStore(Path(tempfile.mkdtemp(), "count-0"), codec)
    >>> written = store.put(3, {"out": pa.record_batch({"n": [1, 2]})})
    >>> store.get(3)["out"].to_pylist()
    [{'n': 1}, {'n': 2}]
    >>> store.close()
    >>> store.directory.exists()
    False
    """

    def __init__(self, directory: Path | str, codec: SpillCodec[P]) -> None:
        self.directory = Path(directory)
        self._codec = codec
        #: epoch -> size of its file, for all complete files
        self._files: dict[int, int] = {}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in self.directory.glob(f"*{_SUFFIX}*"):
                leftover.unlink()
        except OSError as error:
            raise EnvironmentFault(f"cannot use {self.directory} for buffer state: {error}") from error

    def put(self, epoch: int, payload: P) -> int:
        """Writes a payload and returns the size of its file; on EnvironmentFault no part of it stays on disk."""
        if epoch in self._files:
            raise InternalError(f"epoch {epoch} is already in the spill store {self.directory}")
        path = self._path(epoch)
        packed = pack_batches(*self._codec.to_batches(payload))
        try:
            self._files[epoch] = _write(path, packed)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot write {packed.nbytes} bytes of buffer state (epoch {epoch}) to {path}: {error}; "
                "free some space, spill to another directory or raise the buffer budget"
            ) from error
        return self._files[epoch]

    def get(self, epoch: int) -> P:
        """The payload of an epoch, on memory-mapped columns that stay readable after the epoch is dropped."""
        if epoch not in self._files:
            raise InternalError(f"epoch {epoch} is not in the spill store {self.directory}")
        path = self._path(epoch)
        try:
            packed = _read(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise EnvironmentFault(f"buffer state of epoch {epoch} cannot be read back from {path}: {error}") from error
        return self._codec.from_batches(*unpack_batches(packed))

    def drop(self, epochs: Iterable[int]) -> None:
        """Deletes the files of these epochs; unknown ones are ignored."""
        for epoch in epochs:
            if self._files.pop(epoch, None) is not None:
                _unlink(self._path(epoch))

    def close(self) -> None:
        """Deletes all files, and the directory unless it contains other files."""
        self.drop(list(self._files))
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def _path(self, epoch: int) -> Path:
        return self.directory / f"{epoch:020d}{_SUFFIX}"


def _write(path: Path, batch: pa.RecordBatch) -> int:
    partial = path.with_name(path.name + _PARTIAL)
    try:
        with pa.OSFile(str(partial), "wb") as sink:
            with pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            size = int(sink.tell())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return size


def _read(path: Path) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot delete buffer state that is not needed any more: {path}: {error}") from error
