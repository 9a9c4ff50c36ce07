"""The ledger of a source, in the driver: the admitted batches, their order, and their holders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from formats.avro_file import Damaged
from primitives.errors import UserError
from seep.protocol.view import STORAGE
from seep.spark.inlet.pieces import Directory, Key, PushedBatch, PushedPiece
from seep.spark.inlet.spool import InletSpool

#: The prefix of names for streams of finite DataFrames, followed by the number of partitions, and the line of runs.
FINITE = "finite-"

Tell = Callable[[dict[str, Any]], None]


class BatchVerdict(Enum):
    """How the ledger classifies a batch that Spark offers."""

    NEXT = "next"
    KNOWN = "known"  #: it was admitted before, but Spark has no record of that
    GAP = "gap"  #: Spark has completed earlier batches that were never admitted here


class FeedLedger:
    """Sends every change to all nodes; with a spool, each batch is written there first."""

    def __init__(
        self,
        source: str,
        spool: InletSpool | None,
        tell: Tell,
        positions: Mapping[int, Any],
        first: int | None = None,
    ) -> None:
        """A run that continues takes over batches admitted after some positions, or in its line from the `first` batch.

        A run without either begins a new line, and ignores batches admitted before. Nodes ask for the ledger as soon as
        they run, so it is complete after this call.
        """
        self.source = source
        self._spool, self._tell = spool, tell
        self._lock = threading.Lock()
        self._directory = Directory()
        #: the last admitted batch, of this run or the one that it continues
        self.last: PushedBatch | None = None
        numbers = spool.numbers(source) if spool is not None else []
        goes_on = first is not None or bool(positions)
        #: the first batch of the line of runs that this one belongs to
        self.line = (first or 0) if goes_on else numbers[-1] + 1 if numbers else 0
        self._begin(positions, [number for number in numbers if number >= self.line])
        self._strays = spool.strays(source) if spool is not None else []
        self._begins_at = self._directory.next

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _begin(self, positions: Mapping[int, Any], numbers: list[int]) -> None:
        first = min(read_up_to(positions), default=self.line)
        self._directory = Directory(first)
        self._check_whole(first, numbers)
        for number in numbers:
            assert self._spool is not None, "without storage nothing was admitted before"
            self.last = _only_stored(self._spool.get(self.source, number))
            self._directory.add(self.last)

    def _check_whole(self, first: int, numbers: list[int]) -> None:
        """Raises unless all batches from the first are there; the earlier run has read those before."""
        found = [number for number in numbers if number >= first]
        last = numbers[-1] if numbers else self.line - 1
        if found != list(range(first, first + len(found))) or last < first - 1:
            raise Damaged(
                f"source {self.source!r}: of what Spark has pushed, batches from {first} on are needed, and the "
                f"storage has only {found or numbers}"
            )

    # -- batches ------------------------------------------------------------------------------------------------------

    def verdict(self, stream: str, id: int) -> BatchVerdict:
        """Classifies a batch; batches of a stream must come in order, each once."""
        done = self._directory.done
        if id <= done.get(stream, -1):
            return BatchVerdict.KNOWN
        return BatchVerdict.NEXT if id == done.get(stream, -1) + 1 else BatchVerdict.GAP

    def partitions_done(self, partitions: int) -> int:
        """Returns how many partitions of a finite DataFrame are admitted; UserError if it is another DataFrame."""
        if self.last is None:
            return 0
        same = self.last.stream == self.finite_stream(partitions)
        if self.last.stream.startswith(FINITE) and not same:
            raise UserError(
                f"source {self.source!r}: the DataFrame has {partitions} partitions, and when it was read first it had "
                f"{self.last.stream.split('-')[1]}: the run can only go on with the same; see to it with "
                "df.repartition(…), or begin from nothing with restore='none'"
            )
        return max(piece.partition for piece in self.last.pieces) + 1 if same else 0

    def finite_stream(self, partitions: int) -> str:
        """Returns the stream name of a finite DataFrame; it differs between lines of runs."""
        return f"{FINITE}{partitions}" + (f"-{self.line}" if self.line else "")

    def next_of(self, stream: str) -> int:
        """Returns Spark's number of the next batch of a stream."""
        return self._directory.done.get(stream, -1) + 1

    def admit(self, stream: str, id: int, latest: int, pieces: Iterable[PushedPiece]) -> None:
        """Admits a batch: from now on, it is read exactly once, even after failures."""
        ordered = tuple(sorted(pieces, key=lambda piece: piece.partition))
        with self._lock:
            batch = PushedBatch(self._directory.next, stream, id, latest, ordered)
            if self._spool is not None:
                self._spool.put(self.source, batch)
            self._directory.add(batch)
            self.last = batch
            news = self._directory.news([batch])
        self._tell(news)

    def end(self) -> None:
        """Ends the input: no more batches are admitted."""
        with self._lock:
            self._directory.ended = True
            news = self._directory.news()
        self._tell(news)

    def replace(self, batch: PushedBatch) -> None:
        """Replaces a batch, some of whose pieces have other holders now."""
        with self._lock:
            if batch.number < self._directory.first:
                return
            self._directory.add(batch)
            news = self._directory.news([batch])
        self._tell(news)

    # -- contents -----------------------------------------------------------------------------------------------------

    def kept(self) -> list[PushedBatch]:
        """Returns all batches that can still be read."""
        with self._lock:
            return list(self._directory)

    def unread(self, positions: Mapping[int, Any], slots: int) -> int:
        """Returns the bytes of batches that some slot has not read to the end."""
        first = min(read_up_to(positions), default=0) if len(positions) >= slots else 0
        return sum(batch.nbytes for batch in self.kept() if batch.number >= first)

    def is_read(self, positions: Mapping[int, Any], slots: int) -> bool:
        """Whether all slots have read all admitted batches."""
        return len(positions) >= slots and min(read_up_to(positions)) >= self._directory.next

    def key(self, batch: PushedBatch) -> Key:
        return Key(self.source, batch.stream, batch.id)

    def news(self) -> dict[str, Any]:
        """Returns everything that a node needs to follow the ledger."""
        with self._lock:
            return self._directory.news(self._directory)

    # -- dropping -----------------------------------------------------------------------------------------------------

    def trim(self, first: int) -> None:
        """Drops the batches before this one, which no source will read again."""
        with self._lock:
            if not self._directory.trim(first):
                return
            news = self._directory.news()
        self._tell(news)

    def trim_spool(self, first: int) -> None:
        """Drops batches before this one from storage, except the last admitted, which records what Spark has done."""
        if self._spool is None:
            return
        for number in self._spool.numbers(self.source)[:-1]:
            if number < first:
                self._spool.remove(self.source, self._spool.get(self.source, number))
        self._remove_strays(self._spool)

    def _remove_strays(self, spool: InletSpool) -> None:
        """Removes what runs before had pushed and not admitted; now that they cannot: this run has admitted a batch.

        Their next batch would have the number of that one.
        """
        if self._strays and self._directory.next > self._begins_at:
            still = set(spool.strays(self.source))
            spool.remove_pieces(key for key in self._strays if key in still)
            self._strays = []


def read_up_to(positions: Mapping[Any, Any]) -> list[int]:
    """Returns, for each slot with partitions, the number of the first batch that it has not read to the end."""
    return [position[0][0] for position in positions.values() if position[0] is not None]


def _only_stored(batch: PushedBatch) -> PushedBatch:
    """Returns the batch for another run: its nodes are gone, so only the storage holds it."""
    return batch._replace(
        pieces=tuple(piece._replace(holders=(STORAGE,) if piece.rows else ()) for piece in batch.pieces)
    )
