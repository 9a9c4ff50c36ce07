"""MappedFiles: keeps large buffers in memory-mapped files without a name instead of in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.checkpoint import Checkpoint
from primitives.emission import Emission
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk
from primitives.state.files import disk_faults, fresh_directory, map_file


class MappedFiles:
    """Puts large buffers into files of a directory that belongs to this shelf alone.

    A file is deleted as soon as it is mapped, so its space is free when nothing refers to the buffer any more, or the
    process ends. Buffers that are on the shelf already are not written again.

    >>> import tempfile
    >>> shelf = MappedFiles(Path(tempfile.mkdtemp(), "backups"), above=4)
    >>> shelf.buffer([pa.py_buffer(b"a large "), pa.py_buffer(b"buffer")]).to_pybytes(), list(shelf.directory.iterdir())
    (b'a large buffer', [])
    """

    def __init__(self, directory: Path | str, above: int = 1 << 20) -> None:
        self.directory = fresh_directory(Path(directory))
        self._above = above
        self._serials = count()
        self._lock = threading.Lock()
        #: address -> the mapped buffer there, while anything refers to it
        self._maps: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()

    def buffer(self, parts: Sequence[pa.Buffer]) -> pa.Buffer:
        """The parts as one buffer, on the shelf if it is large."""
        size = sum(part.size for part in parts)
        if len(parts) == 1 and (size <= self._above or self._holds(parts[0])):
            return parts[0]
        if size <= self._above:
            return pa.py_buffer(b"".join(parts))
        return self._put(size, lambda sink: [sink.write(part) for part in parts])

    def filling(self, size: int) -> MappedFile:
        """Returns a buffer of that size, to be filled."""
        return MappedFile(size, self if size > self._above else None)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, on the shelf if it is large."""
        buffers = (buffer for column in batch.columns for buffer in column.buffers() if buffer)
        if batch.nbytes <= self._above or any(map(self._holds, buffers)):
            return batch

        def write(sink: Any) -> None:
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)

        with pa.ipc.open_stream(self._put(batch.nbytes, write)) as stream:
            return stream.read_next_batch()

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns the checkpoint with large parts of its state and output on the shelf."""
        buffer = tuple((epoch, self._emission(emission)) for epoch, emission in checkpoint.buffer)
        return replace(checkpoint, state=tuple(map(self._chunk, checkpoint.state)), buffer=buffer)

    def _chunk(self, chunk: Any) -> Any:
        match chunk:
            case FileChunk():
                contents = {name: self.buffer([content]) for name, content in chunk.contents.items()}
                return replace(chunk, contents=contents)
            case Chunk():
                return replace(chunk, rows=self.batch(chunk.rows), deleted=self.batch(chunk.deleted))
        return chunk

    def _emission(self, emission: Emission[Any]) -> Emission[Any]:
        outputs = {
            edge: self.batch(batch) if isinstance(batch, pa.RecordBatch) else batch
            for edge, batch in emission.outputs.items()
        }
        return replace(emission, outputs=outputs)

    def _put(self, size: int, write: Callable[[Any], Any]) -> pa.Buffer:
        path = self.fresh_path()
        with disk_faults(f"keep {size} bytes of backups in {self.directory}"):
            try:
                with pa.OSFile(str(path), "wb") as sink:
                    write(sink)
                return self.take(path)
            finally:
                path.unlink(missing_ok=True)

    def fresh_path(self) -> Path:
        """Returns a path for a file that the shelf will take."""
        return self.directory / str(next(self._serials))

    def take(self, path: Path) -> pa.Buffer:
        """Returns the content of such a file, which the caller deletes."""
        mapped = np.frombuffer(map_file(path), np.uint8)
        with self._lock:
            self._maps[mapped.ctypes.data] = mapped
        return pa.py_buffer(mapped)

    def _holds(self, buffer: pa.Buffer) -> bool:
        with self._lock:
            return any(start <= buffer.address < start + len(mapped) for start, mapped in self._maps.items())


class MappedFile:
    """A buffer of known size that is filled from its beginning; in a file if it has a shelf and the disk has room.

    >>> filling = MappedFile(5)
    >>> filling.write(pa.py_buffer(b"he")), filling.write(pa.py_buffer(b"llo"))
    (None, None)
    >>> filling.whole().to_pybytes()
    b'hello'
    """

    def __init__(self, size: int, shelf: MappedFiles | None = None) -> None:
        self._size, self._shelf, self._at = size, shelf, 0
        self._path = shelf.fresh_path() if shelf is not None else None
        self._file: IO[bytes] | None = None
        if self._path is not None:
            with suppress(OSError):  # no room: the caller who keeps the buffer reports it
                self._file = self._path.open("w+b", buffering=0)
        self._memory = None if self._file is not None else pa.allocate_buffer(size)

    def write(self, part: pa.Buffer) -> None:
        """Writes the next bytes."""
        if self._file is not None and not self._is_written(part):
            self._leave_disk()
        if self._memory is not None:
            target = np.frombuffer(self._memory, np.uint8)[self._at : self._at + part.size]
            np.copyto(target, np.frombuffer(part, np.uint8))  # releases Python's lock
        self._at += part.size

    def whole(self) -> pa.Buffer:
        """Returns the complete buffer."""
        if self._memory is not None:
            return self._memory
        assert self._shelf is not None
        assert self._path is not None
        try:
            return self._shelf.take(self._path)
        finally:
            self.drop()

    def drop(self) -> None:
        """Deletes the file, if any; mapped parts stay readable."""
        if self._file is not None:
            self._file.close()
            self._file = None
            assert self._path is not None
            self._path.unlink(missing_ok=True)

    def _is_written(self, part: pa.Buffer) -> bool:
        assert self._file is not None
        with suppress(OSError):
            return bool(self._file.write(part) == part.size)
        return False

    def _leave_disk(self) -> None:
        self._memory = pa.allocate_buffer(self._size)
        if self._at:
            with pa.memory_map(str(self._path)) as written:
                memoryview(self._memory)[: self._at] = memoryview(written.read_buffer(self._at))
        self.drop()
