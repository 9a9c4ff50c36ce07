"""Writes files that survive a crash: complete and flushed to disk before they are visible under their name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


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
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
