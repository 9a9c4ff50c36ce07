"""Files that survive a crash: written whole, flushed to the disk, and only then visible under their name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """A new file, flushed to the disk."""
    with open(path, "wb") as stream:
        fill(stream)
        stream.flush()
        os.fsync(stream.fileno())


def publish(path: Path, target: Path) -> None:
    """Moves a written file to where it is meant to be, at once and for good, in place of what was there."""
    os.rename(path, target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """The names in a directory, flushed to the disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
