"""Writes files for containers of a running process atomically, and reports faults of the disk clearly."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from primitives.errors import EnvironmentFault


@contextmanager
def disk_faults(task: str) -> Iterator[None]:
    """Converts an error of the operating system to EnvironmentFault, which says what could not be done."""
    try:
        yield
    except OSError as reason:
        raise EnvironmentFault(
            f"cannot {task}: {reason}; free some space, or choose another directory or a larger memory budget"
        ) from reason


def fresh_directory(path: Path) -> Path:
    """Creates an empty directory; files of an earlier process are removed."""
    with disk_faults(f"use {path} for state"):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    return path


def write_file(path: Path, data: pa.Buffer) -> None:
    """Writes a file; removes it if that fails."""
    with disk_faults(f"write {data.size} bytes of state to {path}"):
        try:
            path.write_bytes(data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def read_file(path: Path) -> pa.Buffer:
    """The content of a file."""
    with disk_faults(f"read state back from {path}"):
        return pa.py_buffer(path.read_bytes())


def map_file(path: Path) -> pa.Buffer:
    """Returns the content of a file by a memory map; it stays readable when the file is deleted."""
    with disk_faults(f"read state back from {path}"):
        if not path.stat().st_size:
            return pa.py_buffer(b"")
        with pa.memory_map(str(path)) as source:
            return source.read_buffer()


def link_or_copy(source: Path, target: Path) -> None:
    """Links a file that never changes to another path, or copies it."""
    try:
        target.hardlink_to(source)
    except OSError:  # on another file system
        shutil.copy(source, target)


def write_batch(path: Path, batch: pa.RecordBatch) -> None:
    """Writes a batch as a file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    write_file(path, sink.getvalue())


def read_batch(path: Path) -> pa.RecordBatch:
    """The batch in a file."""
    with pa.ipc.open_stream(read_file(path)) as stream:
        return stream.read_next_batch()
