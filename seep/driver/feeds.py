"""All feeds of a run: starts and ends them with the run, and answers nodes and tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.manifest import Manifest
from primitives.errors import SeepError, UserError
from seep.channels.letters import NewsOfPushed
from seep.channels.security import Security
from seep.driver.driver import ManagerProcess
from seep.driver.feed import LAST_BATCH, Feed, FiniteFeed, StreamingFeed
from seep.driver.listener import RunListener
from seep.driver.node_register import NodeRecord
from seep.driver.piece_keeper import COPIES, PieceKeeper
from seep.query.program import Program
from seep.spark.inlet.ledger import FeedLedger
from seep.spark.inlet.push import PushSettings
from seep.spark.inlet.source import spark_sources
from seep.spark.inlet.spool import InletSpool
from seep.storage.catalogue import Catalogue
from seep.storage.location import store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two rounds of the keeper, and between two rounds of removing batches from storage.
_ROUND, _TIDY = 0.1, 5.0
#: Seconds in which stopped feeds must end.
_STOPPING = 10.0


def session_of(program: Program) -> SparkSession | None:
    """Returns the session of a program's DataFrames, which also hosts the run; None without DataFrames."""
    sessions = {id(each.df.sparkSession.sparkContext): each.df.sparkSession for each in spark_sources(program).values()}
    if len(sessions) > 1:
        raise UserError(f"query {program.name!r} has DataFrames of several Spark applications; read all in one session")
    return next(iter(sessions.values()), None)


def check_feeds(program: Program, stores: bool, nodes: int) -> None:
    """Raises UserError if pushed rows could be lost, given the storage and the number of nodes."""
    sources = spark_sources(program)
    if stores or not sources:
        return
    for name, source in sources.items():
        if source.streaming is not None and source.streaming.checkpoint is not None:
            raise UserError(
                f"source {name!r} has a checkpoint= for Spark, and the run has no storage: Spark would go on after "
                "a restart from where this run's state is lost. Give the run storage (--storage), or leave "
                "checkpoint= out"
            )
    if nodes < COPIES:
        raise UserError(
            f"what Spark pushes is kept on {COPIES} nodes, and the run has one: give it more (--nodes), or storage"
        )


class _Finishing(NamedTuple):
    """The end of the input: Spark's last batches may arrive until the deadline, and all pushed batches are read."""

    then: Callable[[], None]
    deadline: float


class Feeds(RunListener):
    """The feeds of a run: a feed and a ledger for each DataFrame, and one keeper for all."""

    def __init__(
        self, process: ManagerProcess, program: Program, security: Security, catalogue: Catalogue[Manifest] | None
    ) -> None:
        self._process, self._security = process, security
        self._sources = spark_sources(program)
        self._keeper = PieceKeeper(process, catalogue)
        store = store_of(process.options.storage) if self._sources else None
        self._spool = InletSpool(store, program.name) if store is not None else None
        self._ledgers = {name: self._ledger(name) for name in self._sources}
        self._feeds: dict[str, Feed] = {}
        self._known: set[str] = set()  #: the nodes in the previous round
        self._ended: set[str] = set()  #: sources for which Spark has no more batches
        self._lock = threading.Lock()  #: guards the ended sources, as each feed has a thread
        self._finishing: _Finishing | None = None  #: set when the input is to end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seep feeds", daemon=True)
        process.subscribe(self)
        process.serve("pushed", self._on_pushed)

    def _ledger(self, source: str) -> FeedLedger:
        resume = self._process.program.resume
        positions = resume.beginning.positions.get(source, {}) if resume is not None else {}
        first = resume.pushed.get(source) if resume is not None else None
        return FeedLedger(
            source, self._spool, lambda news: self._process.tell_nodes(NewsOfPushed(source, news)), positions, first
        )

    @property
    def first_batches(self) -> dict[str, int]:
        """Returns, for each source, the first batch of this run's line."""
        return {name: ledger.line for name, ledger in self._ledgers.items()}

    # -- for the run --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the feeds, when the nodes have joined."""
        if not self._sources:
            return
        for name, ledger in self._ledgers.items():
            self._feeds[name] = self._feed(name, ledger)
        for feed in self._feeds.values():
            feed.start()
        self._thread.start()

    def finish(self, then: Callable[[], None]) -> None:
        """Begins no more batches; calls `then` when all admitted batches have been read."""
        if not self._feeds:
            then()
            return
        for feed in self._feeds.values():  # for all feeds, so that none begins a batch while another one ends
            feed.begin_no_more()
        self._finishing = _Finishing(then, time.monotonic() + LAST_BATCH)

    def close(self) -> None:
        """Stops all pushing at once."""
        self._over.set()
        self._stop_feeds()
        for feed in self._feeds.values():
            feed.join()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _feed(self, name: str, ledger: FeedLedger) -> Feed:
        source = self._sources[name]
        settings = PushSettings(name, source.schema, source.time, self._process.address, self._security)
        kind = FiniteFeed if source.streaming is None else StreamingFeed
        return kind(source, settings, ledger, self._keeper, lambda: self._has_room(name), _Events(self, name))

    def _has_room(self, name: str) -> bool:
        """Whether Spark may push a batch: the last one may exceed `ahead`, as its size is not known before."""
        source = self._sources[name]
        return self._ledgers[name].unread(self._positions(name), source.partitions) < source.ahead

    # -- notices of the event loop -------------------------------------------------------------------------------------

    def joined(self, record: NodeRecord) -> None:  # noqa: ARG002
        for feed in tuple(self._feeds.values()):
            feed.wake()

    def read(self, source: str) -> None:
        if source in self._feeds:
            self._feeds[source].wake()

    # -- requests, on threads of the port ------------------------------------------------------------------------------

    def _on_pushed(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        match body:
            case {"directory": str(source)}:
                return self._ledgers[source].news()
            case {"places": str(source), "partition": int(partition)}:
                key = self._feeds[source].pushing
                places = self._keeper.places(source, partition % self._sources[source].partitions)
                return {"stream": key.stream, "id": key.id, "places": places}
        raise UserError(f"nothing is known of {body!r:.200}")

    # -- notices of feeds, on their threads ----------------------------------------------------------------------------

    def ended(self, name: str) -> None:
        """Records the end of a source.

        A run that continued after all input informs its nodes only if there was more.
        """
        with self._lock:
            self._ended.add(name)
            if not self._process.program.begins_at_end:
                self._ledgers[name].end()
            elif self._ended == self._ledgers.keys():
                self._end_all()

    def _end_all(self) -> None:
        if self._is_unchanged():
            self._process.conclude_unchanged()
            return
        for ledger in self._ledgers.values():
            ledger.end()

    def _is_unchanged(self) -> bool:
        resume = self._process.program.resume
        before = resume.beginning.positions if resume is not None else {}
        return all(
            ledger.is_read(before.get(name, {}), self._sources[name].partitions)
            for name, ledger in self._ledgers.items()
        )

    def failed(self, reason: SeepError) -> None:
        self._process.fail(reason)

    # -- on its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        tidied = time.monotonic()
        while not self._over.wait(_ROUND) and not self._process.ended.is_set():
            try:
                self._look_after()
                self._finish_if_read()
            except SeepError as reason:
                self._process.fail(reason)
            if time.monotonic() - tidied > _TIDY:
                tidied = time.monotonic()
                self._tidy()
        self._stop_feeds()

    def _look_after(self) -> None:
        nodes = set(self._keeper.nodes())
        if self._known - nodes:
            for feed in self._feeds.values():
                feed.node_lost()
        self._known = nodes
        for feed in self._feeds.values():
            feed.look_after()
        for name, ledger in self._ledgers.items():
            self._keeper.secure(ledger)
            self._keeper.trim(ledger, self._sources[name].partitions)

    def _tidy(self) -> None:
        for ledger in self._ledgers.values():
            with suppress(SeepError):  # remaining files are found the next time
                self._keeper.trim_spool(ledger)

    def _finish_if_read(self) -> None:
        if self._finishing is not None and self._is_finished(self._finishing):
            self._finishing.then()
            self._finishing = None

    def _is_finished(self, finishing: _Finishing) -> bool:
        """Ends each feed when its last batch is admitted; returns whether all admitted batches are read."""
        now = time.monotonic()
        for feed in self._feeds.values():
            feed.stop_between_batches(at_once=now >= finishing.deadline)
        have_ended = all(feed.has_ended for feed in self._feeds.values()) or now >= finishing.deadline + _STOPPING
        return have_ended and self._is_read()

    def _is_read(self) -> bool:
        return all(
            ledger.is_read(self._positions(name), self._sources[name].partitions)
            for name, ledger in self._ledgers.items()
        )

    def _positions(self, name: str) -> Mapping[int, Any]:
        return self._process.positions[name]

    def _stop_feeds(self) -> None:
        for feed in self._feeds.values():
            feed.stop()


class _Events:
    """Forwards the notices of a feed, with its name."""

    def __init__(self, feeds: Feeds, name: str) -> None:
        self._feeds, self._name = feeds, name

    def fed(self) -> None:
        self._feeds.ended(self._name)

    def failed(self, reason: SeepError) -> None:
        self._feeds.failed(reason)
