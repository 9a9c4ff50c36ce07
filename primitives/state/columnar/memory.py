"""Region: an array that grows in place, without a copy, so that it is never in memory twice."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Element = TypeVar("Element", bound=np.generic)

#: The page size of large regions: huge pages. They need this alignment too, which the kernel provides if the size of
#: the region is a multiple of it.
_HUGE_PAGE = 2 << 20

#: Rows moved at a time.
_BLOCK = 1 << 16


class Region(Generic[Element]):
    """One-dimensional array in its own memory, which the operating system extends by moving page tables (mremap).

    Fresh elements are zero, and take memory only once they are written. Do not keep views of `array`: a view that
    exists while the region grows forces a copy, and does not see later writes.

    >>> squares = Region(np.int64)
    >>> squares.reserve(1_000_000)
    >>> squares.array[999_999]
    np.int64(0)
    """

    __slots__ = ("_dtype", "_memory", "array")

    array: NDArray[Element]  #: all elements, those in reserve included

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._memory = _anonymous(mmap.PAGESIZE)
        self.array = np.frombuffer(self._memory, self._dtype)

    def reserve(self, length: int) -> None:
        """Makes room for at least `length` elements, and for half as many again as there are."""
        if length > len(self.array):
            self._resize(max(length, len(self.array) * 3 // 2))

    def keep(self, rows: NDArray[np.int64], width: int = 1) -> None:
        """Keeps these rows, which ascend and have `width` elements each; gives back the memory of the others."""
        table = self.array[: len(self.array) // width * width].reshape(-1, width)
        for start in range(0, len(rows), _BLOCK):  # in place, as no row moves to a higher place
            table[start : start + _BLOCK][: len(rows) - start] = table[rows[start : start + _BLOCK]]
        del table
        self.truncate(len(rows) * width)

    def truncate(self, length: int) -> None:
        """Gives back the memory of all elements from `length` on."""
        kept = _whole_pages(length * self._dtype.itemsize) // self._dtype.itemsize
        self.array[length:kept] = 0  # the rest of the last page must be zero when it is used again
        self._resize(length)

    def _resize(self, length: int) -> None:
        self.array = np.empty(0, self._dtype)  # frees the memory
        self._memory = _resized(self._memory, _whole_pages(length * self._dtype.itemsize))
        self.array = np.frombuffer(self._memory, self._dtype)


def _whole_pages(size: int) -> int:
    page = _HUGE_PAGE if size > _HUGE_PAGE else mmap.PAGESIZE
    return max(-(-size // page), 1) * page


def _anonymous(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _resized(memory: mmap.mmap, size: int) -> mmap.mmap:
    try:
        memory.resize(size)
    except (BufferError, SystemError):  # someone holds a view, or this platform has no mremap
        memory = _copied(memory, size)
    if size > _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _copied(memory: mmap.mmap, size: int) -> mmap.mmap:
    copy = _anonymous(size)
    kept = min(size, len(memory))
    copy[:kept] = memoryview(memory)[:kept]
    return copy
