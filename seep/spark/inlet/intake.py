"""The intake of a node: keeps the pieces that Spark's tasks push to it, and finds those that its sources read."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.flight as flight

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.mapped import MappedFiles
from seep.channels.dial import FAILURES, client_of
from seep.channels.peers import Peers
from seep.channels.security import Security
from seep.channels.wire import encode
from seep.protocol.view import MANAGER, STORAGE
from seep.rows.batches import concat
from seep.spark.inlet.pieces import Directory, Key, PushedPiece
from seep.spark.inlet.spool import InletSpool
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings

#: Pieces larger than this are in files, which the operating system caches.
_SHELVED = 1 << 20
#: Seconds until the manager is asked again, and until a node that does not answer counts as lost.
_RETRY, _PATIENCE = 0.05, 10.0


class _Held(NamedTuple):
    key: Key
    rows: pa.RecordBatch


class Intake:
    """Keeps complete pieces until their batch is dropped, or admitted without them."""

    def __init__(self, query: str, storage: StorageSettings, security: Security, directory: Path) -> None:
        self._query, self._storage, self._security = query, storage, security
        self._shelf = MappedFiles(directory / "pushed", above=_SHELVED)
        self._lock = threading.Lock()
        #: token -> a piece
        self._held: dict[str, _Held] = {}
        #: source -> its admitted batches
        self._directories: dict[str, Directory] = {}
        self._loaded: set[str] = set()
        self._peers: Peers | None = None
        self._ended = threading.Event()

    def open(self, peers: Peers, ended: threading.Event) -> None:
        """Sets the links to the manager and to other nodes."""
        self._peers, self._ended = peers, ended

    # -- pushed pieces -------------------------------------------------------------------------------------------------

    def on_put(self, opening: Any, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Takes a piece; when this returns, it is kept here, and in the storage if there is one."""
        match opening:
            case ["piece", [str(source), str(stream), int(id)], int(partition), str(token)]:
                rows = self._shelf.batch(_as_one(list(batches)))
                self._keep(Key(source, stream, id), partition, token, rows)
                return b"kept"
        raise EnvironmentFault("what was pushed does not say what it is; are all parts of the same version of seep?")

    def _keep(self, key: Key, partition: int, token: str, rows: pa.RecordBatch) -> None:
        if self._is_late(key, token):
            return
        if self._spool is not None:
            self._spool.put_piece(key, partition, token, rows)
        with self._lock:
            self._held[token] = _Held(key, rows)

    def _is_late(self, key: Key, token: str) -> bool:
        """Whether its batch was admitted without this attempt, because Spark counts another one."""
        directory = self._directory(key.source)
        return directory.is_done(key.stream, key.id) and token not in _tokens(directory)

    def on_get(self, request: Any) -> flight.RecordBatchStream:
        """Sends a piece to another node."""
        match request:
            case ["piece", str(token)]:
                held = self._held.get(token)
                if held is not None:
                    return flight.RecordBatchStream(pa.Table.from_batches([held.rows]))
        raise EnvironmentFault(f"nothing is held for {request!r}")

    # -- messages of the manager --------------------------------------------------------------------------------------

    def on_news(self, source: str, news: dict[str, Any]) -> None:
        """Learns that batches were admitted or dropped; drops pieces that are not needed."""
        with self._lock:
            directory = self._directory(source)
            directory.follow(news)
            counted = _tokens(directory)
            for token, (key, _) in list(self._held.items()):
                if key.source == source and directory.is_done(key.stream, key.id) and token not in counted:
                    del self._held[token]

    def on_call(self, method: str, body: Mapping[str, Any]) -> bool:
        """Copies a piece from other holders; raises EnvironmentFault if none of them has it."""
        if method != "copy piece":
            raise UserError(f"nodes do not know the call {method!r}")
        self._copy(Key(*body["key"]), PushedPiece.from_plain(body["piece"]))
        return True

    def _copy(self, key: Key, piece: PushedPiece) -> None:
        rows = self.rows(key, piece)
        with self._lock:
            self._held[piece.token] = _Held(key, self._shelf.batch(rows))

    # -- requests of sources ------------------------------------------------------------------------------------------

    def directory(self, source: str) -> Directory:
        """Returns all batches of a source that can be read."""
        if source not in self._loaded:
            self._load(source)
        return self._directory(source)

    def rows(self, key: Key, piece: PushedPiece) -> pa.RecordBatch:
        """Returns the rows of a piece from any holder; raises EnvironmentFault if no holder has them."""
        held = self._held.get(piece.token)
        if held is not None:
            return held.rows
        for holder in piece.holders:
            with suppress(EnvironmentFault, *FAILURES):
                return self._fetched(holder, key, piece)
        raise EnvironmentFault(
            f"the rows of partition {piece.partition} of batch {key.id} of source {key.source!r} are lost: "
            f"none of {', '.join(piece.holders) or 'no node'} gives them"
        )

    def _fetched(self, holder: str, key: Key, piece: PushedPiece) -> pa.RecordBatch:
        if holder == STORAGE:
            if self._spool is None:
                raise EnvironmentFault("there is no storage")
            return self._spool.get_piece(key, piece)
        link = self._links.link(holder)
        if link is None:
            raise EnvironmentFault(f"{holder} is gone")
        options = flight.FlightCallOptions(timeout=_PATIENCE, headers=[self._security.header])
        with client_of(link.address, self._security) as client:
            reader = client.do_get(flight.Ticket(encode(["piece", piece.token]).to_pybytes()), options)
            return _as_one(reader.read_all().to_batches())

    def _load(self, source: str) -> None:
        """Loads the ledger from the manager; repeats the request until it answers or this node ends."""
        link = self._links.link(MANAGER)
        while link is not None:
            try:
                news = link.call("pushed", {"directory": source})
            except EnvironmentFault:
                if self._ended.wait(_RETRY):
                    raise
                continue
            self.on_news(source, news)
            self._loaded.add(source)
            return

    def reload(self, source: str) -> None:
        """Loads the ledger again, because the holders of pieces may have changed."""
        self._load(source)

    def _directory(self, source: str) -> Directory:
        return self._directories.setdefault(source, Directory())

    @cached_property
    def _spool(self) -> InletSpool | None:
        store = store_of(self._storage)
        return InletSpool(store, self._query) if store is not None else None

    @property
    def _links(self) -> Peers:
        if self._peers is None:
            raise InternalError("an intake was asked before it was opened")
        return self._peers


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if not batches:
        raise EnvironmentFault("a piece has no rows")
    return concat(batches, batches[0].schema)


def _tokens(directory: Directory) -> set[str]:
    """Returns the tokens of all pieces of admitted batches."""
    return {piece.token for batch in directory for piece in batch.pieces}
