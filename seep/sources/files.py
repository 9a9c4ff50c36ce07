"""Input files: finds the files for a path, and divides them among partitions."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from primitives.errors import UserError
from primitives.slots import SlotSet, split_by_weight

Item = TypeVar("Item")

#: The most partitions that files are divided among, unless the caller gives another number.
PARTITIONS = 256


class InputFile(NamedTuple):
    """A file with its size when the query was made; rows appended later are not read."""

    path: str
    size: int


def absolute(path: str | Path) -> str:
    """Returns the absolute path, which other processes can use from any directory."""
    if "://" in str(path):
        raise UserError(f"{path} is not a path; files must be in a local or shared directory: mount it, or copy them")
    return str(Path(path).absolute())


def resolve(path: str | Path, suffixes: Sequence[str]) -> list[InputFile]:
    """Returns the files for a path, a glob pattern or a directory, sorted by name; raises UserError if there are none.

    Names that begin with `.` or `_` are hidden. In a directory only files with one of the suffixes count.
    """
    found = [Path(name) for name in sorted(_matches(Path(path), suffixes)) if Path(name).is_file()]
    if not found:
        raise UserError(
            f"no files match {path}; give a file, a pattern, or a directory with {' or '.join(suffixes)} files"
        )
    return [InputFile(str(file), file.stat().st_size) for file in found]


def _matches(path: Path, suffixes: Sequence[str]) -> list[str]:
    if path.is_dir():
        return [str(file) for file in path.iterdir() if file.suffix in suffixes and not _is_hidden(file)]
    if path.exists() or not has_magic(str(path)):
        return [str(path)]
    return [name for name in glob(str(path), recursive=True) if not _is_hidden(Path(name))]


def _is_hidden(file: Path) -> bool:
    return file.name.startswith((".", "_"))


class Parts(NamedTuple, Generic[Item]):
    """Items divided among partitions in two ways, with the same number of partitions."""

    neighbours: list[list[Item]]  #: each partition has consecutive items
    by_time: list[list[Item]]  #: each partition has items of all times: see `deal_out`

    @classmethod
    def of(cls, items: Sequence[Item], weights: Sequence[int], most: int, by_time: Sequence[Item]) -> Parts[Item]:
        """Divides items, given in the order of their names and, as `by_time`, in the order of their time."""
        neighbours = share_out(items, weights, most)
        return cls(neighbours, deal_out(by_time, len(neighbours)))


def deal_out(items: Sequence[Item], parts: int) -> list[list[Item]]:
    """Deals items one by one to the parts, in rounds; neighbouring parts are far apart in a round.

    So instances with neighbouring partitions progress through event time at the same speed.

    >>> deal_out("abcdef", 4)
    [['a', 'e'], ['c'], ['b', 'f'], ['d']]
    """
    width = max(parts - 1, 0).bit_length()
    round_ = sorted(range(parts), key=lambda part: f"{part:0{width}b}"[::-1])
    dealt: list[list[Item]] = [[] for _ in range(parts)]
    for at, item in enumerate(items):
        dealt[round_[at % parts]].append(item)
    return dealt


def content_of(files: Iterable[tuple[str, int]]) -> str:
    """Returns a short text that depends on names and sizes of files.

    >>> content_of([("/data/a.csv", 7), ("/data/b.csv", 1)]) == content_of([("/moved/a.csv", 7), ("/moved/b.csv", 1)])
    True
    """
    found = [f"{Path(path).name} {size}" for path, size in files]
    return f"{len(found)} files {zlib.crc32(chr(10).join(found).encode()):08x}"


def share_out(items: Sequence[Item], weights: Sequence[int], most: int) -> list[list[Item]]:
    """Divides items into up to `most` parts of consecutive items with even weights; one empty part for no items.

    >>> share_out("abcd", [1, 1, 1, 3], 2)
    [['a', 'b', 'c'], ['d']]
    """
    if not items:
        return [[]]
    parts = split_by_weight(SlotSet.range(0, len(items) - 1), np.array(weights, np.float64), min(most, len(items)))
    return [[items[at] for at in part] for part in parts]
