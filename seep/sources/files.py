"""Input files: which ones a path means, and how they are shared out over partitions."""

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

#: Files are read by at most so many partitions, unless the caller wants more or fewer.
PARTITIONS = 256


class InputFile(NamedTuple):
    """A file as it was when the query was made; what is appended later is not read."""

    path: str
    size: int


def absolute(path: str | Path) -> str:
    """The path as other processes see it, whatever directory they are in."""
    if "://" in str(path):
        raise UserError(f"{path} is not a path; files must be in a local or shared directory: mount it, or copy them")
    return str(Path(path).absolute())


def resolve(path: str | Path, suffixes: Sequence[str]) -> list[InputFile]:
    """The files that a path, a glob pattern or a directory means, by name; UserError if there are none.

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
    """Items shared out over partitions, in either of two ways; both have the same number of partitions."""

    neighbours: list[list[Item]]  #: each partition has items that follow each other
    by_time: list[list[Item]]  #: each partition has items of all times: see `deal_out`

    @classmethod
    def of(cls, items: Sequence[Item], weights: Sequence[int], most: int, by_time: Sequence[Item]) -> Parts[Item]:
        """Of items, which are given in the order of their time too."""
        neighbours = share_out(items, weights, most)
        return cls(neighbours, deal_out(by_time, len(neighbours)))


def deal_out(items: Sequence[Item], parts: int) -> list[list[Item]]:
    """Items one by one to one part after the other, in turns; neighbouring parts are far apart in a turn.

    So instances that have any neighbouring partitions each get through all of the time together.

    >>> deal_out("abcdef", 4)
    [['a', 'e'], ['c'], ['b', 'f'], ['d']]
    """
    width = max(parts - 1, 0).bit_length()
    turn = sorted(range(parts), key=lambda part: f"{part:0{width}b}"[::-1])
    dealt: list[list[Item]] = [[] for _ in range(parts)]
    for at, item in enumerate(items):
        dealt[turn[at % parts]].append(item)
    return dealt


def content_of(files: Iterable[tuple[str, int]]) -> str:
    """Names and sizes of files in a few words.

    >>> content_of([("/data/a.csv", 7), ("/data/b.csv", 1)]) == content_of([("/moved/a.csv", 7), ("/moved/b.csv", 1)])
    True
    """
    found = [f"{Path(path).name} {size}" for path, size in files]
    return f"{len(found)} files {zlib.crc32(chr(10).join(found).encode()):08x}"


def share_out(items: Sequence[Item], weights: Sequence[int], most: int) -> list[list[Item]]:
    """Neighbouring items together, in up to `most` parts of weights as even as can be; one empty part for no items.

    >>> share_out("abcd", [1, 1, 1, 3], 2)
    [['a', 'b', 'c'], ['d']]
    """
    if not items:
        return [[]]
    parts = split_by_weight(SlotSet.range(0, len(items) - 1), np.array(weights, np.float64), min(most, len(items)))
    return [[items[at] for at in part] for part in parts]
