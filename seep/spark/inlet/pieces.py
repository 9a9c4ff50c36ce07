"""Pieces and pushed batches: metadata of the rows that Spark's tasks have pushed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from primitives.errors import EnvironmentFault


class PushedPiece(NamedTuple):
    """The rows of one partition of a batch, pushed by the attempt that Spark counts."""

    partition: int
    token: str  #: id of the attempt: another attempt may have pushed the rows in another order
    rows: int
    nbytes: int
    holders: tuple[str, ...]  #: nodes, or the storage; none for no rows

    def to_plain(self) -> list[Any]:
        return [*self[:4], list(self.holders)]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> PushedPiece:
        partition, token, rows, nbytes, holders = plain
        return cls(partition, token, rows, nbytes, tuple(holders))


class Key(NamedTuple):
    """Identifies the batch of a piece: source, Spark's stream, and Spark's number."""

    source: str
    stream: str
    id: int


class PushedBatch(NamedTuple):
    """An admitted batch: all its rows are kept in two places."""

    number: int  #: the number in the order of admission, over all streams of the source
    stream: str
    id: int  #: Spark's number, within the stream
    latest: int  #: highest event time
    pieces: tuple[PushedPiece, ...]  #: by partition

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    def of_slot(self, slot: int, slots: int) -> list[PushedPiece]:
        """Returns the pieces with rows that a slot reads, in order: partitions are dealt to slots in turn."""
        return [piece for piece in self.pieces if piece.rows and piece.partition % slots == slot]

    def to_plain(self) -> list[Any]:
        return [*self[:4], [piece.to_plain() for piece in self.pieces]]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> PushedBatch:
        number, stream, id, latest, pieces = plain
        return cls(number, stream, id, latest, tuple(map(PushedPiece.from_plain, pieces)))


class Directory:
    """The admitted batches of a source that can still be read, and whether more will come.

    The driver has the original; nodes follow it by its news, which may arrive twice, but in order.

    >>> directory = Directory(first=3)
    >>> directory.add(PushedBatch(3, "s", 0, 0, ()))
    >>> directory.next, directory.is_over(4)
    (4, False)
    """

    def __init__(self, first: int = 0) -> None:
        self.first = first  #: batches before it are dropped
        self.next = first  #: the number of the next one to be admitted
        self.ended = False
        #: stream -> the last batch of it that was admitted
        self.done: dict[str, int] = {}
        self._batches: dict[int, PushedBatch] = {}

    def __iter__(self) -> Iterator[PushedBatch]:
        return iter(list(self._batches.values()))

    def get(self, number: int) -> PushedBatch | None:
        """Returns an admitted batch; None if it is not admitted yet. Raises EnvironmentFault if it was dropped."""
        if number < self.first:
            raise EnvironmentFault(f"batch {number} is to be read again, and all before {self.first} were let go of")
        return self._batches.get(number)

    def is_over(self, number: int) -> bool:
        """Whether the input ended before this batch."""
        return self.ended and number >= self.next

    def add(self, batch: PushedBatch) -> None:
        """Adds a batch, or updates the holders of a known one."""
        if batch.number >= self.first:
            self._batches[batch.number] = batch
        self.next = max(self.next, batch.number + 1)
        self.done[batch.stream] = max(self.done.get(batch.stream, -1), batch.id)

    def is_done(self, stream: str, id: int) -> bool:
        """Whether a batch of Spark's was ever admitted."""
        return id <= self.done.get(stream, -1)

    def trim(self, first: int) -> list[PushedBatch]:
        """Drops all batches before this one; returns them."""
        gone = [batch for number, batch in self._batches.items() if number < first]
        for batch in gone:
            del self._batches[batch.number]
        self.first = max(self.first, first)
        self.next = max(self.next, first)
        return gone

    # -- news ---------------------------------------------------------------------------------------------------------

    def news(self, batches: Iterable[PushedBatch] = ()) -> dict[str, Any]:
        """Returns the state of the directory, with some of its batches, for `follow`."""
        return {
            "first": self.first,
            "next": self.next,
            "ended": self.ended,
            "done": dict(self.done),
            "batches": [batch.to_plain() for batch in batches],
        }

    def follow(self, news: dict[str, Any]) -> None:
        """Applies news."""
        self.trim(news["first"])
        for plain in news["batches"]:
            self.add(PushedBatch.from_plain(plain))
        for stream, id in news["done"].items():
            self.done[stream] = max(self.done.get(stream, -1), id)
        self.next, self.ended = max(self.next, news["next"]), self.ended or news["ended"]
