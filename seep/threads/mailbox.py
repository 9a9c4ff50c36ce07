"""Mailboxes: many threads put items in, and one thread takes them out."""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Returns letters before stream messages; each kind keeps its order.

    The protocol relies on this order: a node that has answered a view processes it before anything that follows from
    its answer.

    >>> mailbox = Mailbox[str]()
    >>> mailbox.stream("data"), mailbox.letter("view")
    (None, None)
    >>> mailbox.take(), mailbox.take()
    ('view', 'data')
    """

    __slots__ = ("_incoming", "_letters", "_streams")

    def __init__(self) -> None:
        self._incoming: SimpleQueue[tuple[bool, T]] = SimpleQueue()
        self._letters: deque[T] = deque()
        self._streams: deque[T] = deque()

    def letter(self, item: T) -> None:
        self._incoming.put((True, item))

    def stream(self, item: T) -> None:
        self._incoming.put((False, item))

    def take(self) -> T:
        """Waits for the next item and returns it. For one thread only."""
        if not self._letters and not self._streams:
            self._sort(*self._incoming.get())
        while not self._incoming.empty():
            self._sort(*self._incoming.get_nowait())
        return (self._letters or self._streams).popleft()

    def __len__(self) -> int:
        return self._incoming.qsize() + len(self._letters) + len(self._streams)

    def _sort(self, is_letter: bool, item: T) -> None:
        (self._letters if is_letter else self._streams).append(item)
