"""A feed: makes Spark push one DataFrame, batch by batch, and admits batches when they are kept."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.driver.piece_keeper import COPIES, PieceKeeper
from seep.protocol.view import STORAGE
from seep.rows.position import MIN_WATERMARK
from seep.spark.bootstrap import arrow_task
from seep.spark.inlet.arrow_batches import map_in_arrow, unweigh, unweighed
from seep.spark.inlet.ledger import BatchVerdict, FeedLedger
from seep.spark.inlet.pieces import Key, PushedPiece
from seep.spark.inlet.push import RECEIPT_COLUMNS, PushSettings, push
from seep.spark.inlet.source import SparkSource, StreamingOptions
from seep.spark.reason import for_spark, reason_of_exception
from seep.spark.shipping import is_local, loose_modules, packed, ship, travel_by_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery

#: Seconds between two attempts to push a batch; and between two checks for room, without a notice.
_PAUSE, _LOOK = 0.01, 1.0
#: Seconds for which a batch is pushed again before the run fails.
_PATIENCE = 60.0
#: Seconds that a lost node may delay a job before the job is cancelled.
_GRACE = 2.0
#: Seconds that the last batch of a finishing source may take; then it is cancelled, and Spark runs it again later.
LAST_BATCH = 30.0
#: Seconds to wait until Spark has stopped a query.
_STOPPING = 10.0

Job = Callable[[], Sequence["Row"]]


class RunOver(Exception):
    """The run has ended: nothing more is pushed."""


class BatchFailed(Exception):
    """Raised to Spark for a batch that is not admitted: one line, without other exceptions as its cause."""


class FeedEvents(Protocol):
    """The notices of a feed; called on its threads."""

    def fed(self) -> None:
        """Spark has no more batches, and all of them are admitted."""
        ...

    def failed(self, reason: SeepError) -> None: ...


class Feed(ABC):
    """Pushes one DataFrame. `over` ends it at once, whatever it waits for."""

    def __init__(
        self,
        definition: SparkSource,
        settings: PushSettings,
        ledger: FeedLedger,
        keeper: PieceKeeper,
        room: Callable[[], bool],
        events: FeedEvents,
    ) -> None:
        travel_by_value()
        self._definition, self._ledger, self._keeper = definition, ledger, keeper
        self._room, self._events = room, events
        self._context = definition.df.sparkSession.sparkContext
        self._tag = f"seep push {settings.source} {id(self)}"
        by_value = () if is_local(self._context) else loose_modules()
        self._task = arrow_task(ship(self._context), packed(partial(push, settings), by_value))
        #: the batch that is being pushed
        self.pushing = Key(settings.source, "", 0)
        self._jobs = 0  #: jobs that were cancelled, because they waited for a lost node
        #: the times at which to cancel jobs that were running when a node was lost; for the thread of all feeds
        self._suspects: deque[tuple[float, Key]] = deque()
        self._over = threading.Event()
        self._finishing, self._news = threading.Event(), threading.Event()
        self._turn = threading.Lock()  #: held while a batch is pushed and admitted
        self._thread = threading.Thread(target=self._run, name=f"seep feed {settings.source}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @abstractmethod
    def stop(self) -> None:
        """Makes Spark stop pushing; the current batch is not admitted."""

    def begin_no_more(self) -> None:
        """Begins no more batches; the current one continues."""
        self._finishing.set()
        self.wake()

    def wake(self) -> None:
        """Wakes the thread, because there may be room or nodes for a batch."""
        self._news.set()

    def stop_between_batches(self, at_once: bool) -> None:
        """Stops the feed unless a batch is being pushed; with `at_once`, even then. Call `begin_no_more` before."""
        is_idle = self._turn.acquire(blocking=False)
        if is_idle:
            self._turn.release()
        if not self._over.is_set() and (is_idle or at_once):
            self.stop()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, with all admitted batches in the ledger."""
        return not self._thread.is_alive()

    def join(self, timeout: float = 10.0) -> None:
        self._thread.join(timeout)

    def node_lost(self) -> None:
        """Records a lost node: the current job may wait for it for ever, and `look_after` will cancel it."""
        self._suspects.append((time.monotonic() + _GRACE, self.pushing))

    def look_after(self) -> None:
        """Cancels jobs that a lost node has delayed too long; to be called at short intervals."""
        while self._suspects and self._suspects[0][0] <= time.monotonic():
            self._cancel(self._suspects.popleft()[1])

    # -- on its thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._feed()
        except RunOver:
            return
        except SeepError as reason:
            self._tell_failure(reason)
        except Exception as reason:
            self._tell_failure(EnvironmentFault(f"Spark has failed: {reason_of_exception(reason)}"))
        else:
            if not self._over.is_set():
                self._events.fed()

    def _tell_failure(self, reason: SeepError) -> None:
        if not self._over.is_set():
            self._events.failed(reason)

    @abstractmethod
    def _feed(self) -> None:
        """Pushes all batches."""

    def _push(self, stream: str, id: int, job: Job) -> None:
        """Pushes a batch, again if needed, until all of it is kept, and admits it."""
        self._wait(self._room)
        self._wait(lambda: self._keeper.stores or len(self._keeper.nodes()) >= COPIES)
        with self._turn:
            self._check_begins()
            self._push_now(Key(self._ledger.source, stream, id), job)

    def _push_now(self, key: Key, job: Job) -> None:
        self.pushing = key
        begun = time.monotonic()
        while (receipts := self._kept(key, job)) is None:
            if time.monotonic() - begun > _PATIENCE:
                raise EnvironmentFault(f"source {key.source!r}: batch {key.id} could not be pushed: {self._why}")
            self._wait_a_little()
        self.pushing = Key(key.source, "", 0)
        latest = max((receipt.latest for receipt, _ in receipts), default=MIN_WATERMARK)
        self._ledger.admit(key.stream, key.id, latest, [piece for _, piece in receipts])

    def _kept(self, key: Key, job: Job) -> list[tuple[Row, PushedPiece]] | None:
        """Returns the receipts of a batch if all its pieces are in two places; None if it must be pushed again."""
        rows = self._receipts(job)
        if rows is None:
            return None
        nodes = self._keeper.nodes()
        receipts = [(row, self._keeper.secured(key, self._piece(row), nodes)) for row in rows]
        self._why = next((row.why for row in rows if row.why), "too few nodes are there to keep it")
        least = 1 if self._keeper.stores else COPIES
        return receipts if all(len(piece.holders) >= least for _, piece in receipts if piece.rows) else None

    def _receipts(self, job: Job) -> Sequence[Row] | None:
        cancelled = self._jobs
        self._context.addJobTag(_as_tag(self._tag))
        try:
            return job()
        except Exception as reason:
            self._check_going_on()
            if self._jobs > cancelled:
                self._why = "a node was lost"
                return None
            raise UserError(
                f"source {self._ledger.source!r}: the DataFrame failed in Spark: {reason_of_exception(reason)}"
            ) from reason

    def _piece(self, row: Row) -> PushedPiece:
        """Returns the piece of a receipt; with storage, a node that keeps a piece has also stored it."""
        stored = (STORAGE,) if self._keeper.stores and row.holders else ()
        return PushedPiece(row.partition, row.token, row.rows, row.nbytes, (*row.holders, *stored))

    def _cancel(self, key: Key) -> None:
        if key.stream and self.pushing == key and not self._over.is_set():
            self._jobs += 1
            self._cancel_jobs()

    def _cancel_jobs(self) -> None:
        with suppress(Exception):  # Spark may have ended before
            self._context.cancelJobsWithTag(_as_tag(self._tag))

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.wait(_LOOK)
            self._news.clear()
            self._check_begins()

    def _wait_a_little(self) -> None:
        self._over.wait(_PAUSE)
        self._check_going_on()

    def _check_begins(self) -> None:
        if self._finishing.is_set():
            raise RunOver
        self._check_going_on()

    def _check_going_on(self) -> None:
        if self._over.is_set():
            raise RunOver


class FiniteFeed(Feed):
    """Pushes partitions in order, as many at once as there is room for."""

    def stop(self) -> None:
        self._over.set()
        self.wake()
        self._cancel_jobs()

    def _feed(self) -> None:
        df = unweighed(self._definition.df, self._definition.schema)
        receipts = map_in_arrow(df, self._task, RECEIPT_COLUMNS).rdd
        count = receipts.getNumPartitions()
        stream, done, at_once = (
            self._ledger.finite_stream(count),
            self._ledger.partitions_done(count),
            self._definition.partitions,
        )
        while done < count:
            wave = range(done, min(done + at_once, count))
            self._push(stream, self._ledger.next_of(stream), partial(self._context.runJob, receipts, list, wave))
            done, at_once = wave.stop, self._fitting()

    def _fitting(self) -> int:
        """Estimates how many partitions fit into the bytes that may be ahead, limited by Spark's task slots."""
        last = self._ledger.last
        nbytes = last.nbytes // len(last.pieces) if last is not None else 0
        return max(1, min(self._definition.ahead // max(nbytes, 1), self._tasks()))

    def _tasks(self) -> int:
        """Returns how many concurrent tasks are useful: a local session has more slots than cores, for nodes."""
        cores = os.cpu_count() if is_local(self._context) else None
        return min(self._context.defaultParallelism, cores or self._context.defaultParallelism)


class StreamingFeed(Feed):
    """Pushes the batches of a Spark streaming query; a batch is done when it is admitted."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._query: Future[StreamingQuery] = Future()
        self._reason: BaseException | None = None

    @property
    def _settings(self) -> StreamingOptions:
        assert self._definition.streaming is not None
        return self._definition.streaming

    def stop(self) -> None:
        self._over.set()
        self.wake()
        if self._query.done():
            with suppress(Exception):  # Spark may have ended before
                self._query.result().stop()

    def _feed(self) -> None:
        self._check_goes_on()
        writer = self._definition.df.writeStream.foreachBatch(self._on_batch)
        if self._settings.checkpoint is not None:
            writer = writer.option("checkpointLocation", self._settings.checkpoint)
        if self._settings.trigger:
            writer = writer.trigger(**self._settings.trigger)
        query = writer.start()
        self._query.set_result(query)
        if self._over.is_set():
            query.stop()
        try:
            query.awaitTermination()
        except Exception:
            if self._reason is None:
                raise
        if self._reason is not None:
            raise self._reason

    def _check_goes_on(self) -> None:
        """Raises if a continued run's stream has no Spark checkpoint: Spark would begin it again from the start."""
        if self._settings.checkpoint is None and self._ledger.last is not None:
            raise UserError(
                f"source {self._ledger.source!r}: the run goes on from batches that an earlier one had from Spark, and "
                "Spark, without checkpoint=, would read the stream from its beginning again. Give from_spark a "
                "checkpoint=, from the first run on; or begin from nothing, with restore='none'"
            )

    def _on_batch(self, df: DataFrame, id: int) -> None:
        """Takes a batch of Spark, on a thread of Spark's; an exception ends the streaming query.

        When a query is stopped, Spark searches the text of the exception, with all its tracebacks, by a regular
        expression that needs stack for each character. So Spark gets one line, and the run gets the exception.
        """
        query = self._query.result()
        try:
            self._take(df, str(query.id), id)
        except BaseException as reason:
            self._reason = reason
        else:
            return
        raise BatchFailed(self._said_to_spark(query, id))

    def _said_to_spark(self, query: StreamingQuery, id: int) -> str:
        assert self._reason is not None
        if not isinstance(self._reason, RunOver):
            return for_spark(self._reason)
        self._wait_for_stop(query)
        # by this text, and the query's id, Spark recognises the requested end, which is not a failure
        return f"org.apache.spark.SparkException: batch {id} was cancelled, for query {query.runId} was stopped"

    def _wait_for_stop(self, query: StreamingQuery) -> None:
        begun = time.monotonic()
        while query.isActive and time.monotonic() - begun < _STOPPING:
            time.sleep(_PAUSE)

    def _take(self, df: DataFrame, stream: str, id: int) -> None:
        match self._ledger.verdict(stream, id):
            case BatchVerdict.NEXT:
                unweigh(df.sparkSession, self._definition.schema)
                self._push(stream, id, map_in_arrow(df, self._task, RECEIPT_COLUMNS).collect)
            case BatchVerdict.GAP:
                raise UserError(
                    f"source {self._ledger.source!r}: Spark's checkpoint goes on with batch {id}, and this run has not "
                    f"had batch {id - 1}. Let the run go on from where it was, with restore='auto' and its storage; "
                    "or begin from nothing, with another directory for checkpoint="
                )


def _as_tag(text: str) -> str:
    return text.replace(",", " ")
