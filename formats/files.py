"""Writes files that are visible under their name when they are complete; flushed to disk, they survive a crash too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from primitives.errors import EnvironmentFault


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary name next to the file; renames the complete file at the end.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "words.txt")
    >>> with whole_file(path) as partial:
    ...     _ = partial.write_text("all of them"), path.exists()
    >>> path.read_text(), [each.name for each in path.parent.iterdir()]
    ('all of them', ['words.txt'])
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as reason:
        raise EnvironmentFault(f"{path} cannot be written: {reason.strerror or reason}") from reason
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Writes a new file, and flushes it to disk."""
    with open(path, "wb") as stream:
        fill(stream)
        stream.flush()
        os.fsync(stream.fileno())


def publish(path: Path, target: Path) -> None:
    """Moves a written file to its target, atomically and durably; replaces an existing file."""
    os.rename(path, target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Flushes the names in a directory to disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
