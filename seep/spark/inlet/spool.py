"""The spool: pushed batches in the run's storage, which remain after its nodes and driver have ended."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from formats.avro_file import Damaged
from seep.spark.inlet.pieces import Key, PushedBatch, PushedPiece
from seep.storage.layout import PieceKey, PushedBatchKey, StoredKey, key_of, pieces_prefix, pushed_prefix
from seep.storage.store import BlobStore


class InletSpool:
    """Pushed batches in storage. Pieces are Arrow files, written by the nodes to which they are pushed.

    A batch is a small file, written by the driver after all its pieces; it is never overwritten, so that of two drivers
    only one can admit a batch.
    """

    def __init__(self, store: BlobStore, query: str) -> None:
        self._store, self._query = store, query

    # -- pieces -------------------------------------------------------------------------------------------------------

    def put_piece(self, key: Key, partition: int, token: str, rows: pa.RecordBatch) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        self._store.put(self._piece_key(key, partition, token), [sink.getvalue()])

    def get_piece(self, key: Key, piece: PushedPiece) -> pa.RecordBatch:
        name = self._piece_key(key, piece.partition, piece.token)
        try:
            [rows] = pa.ipc.open_stream(pa.py_buffer(self._store.get(name)))
        except (pa.ArrowException, ValueError) as reason:
            raise Damaged(f"{self._store.name}/{name} is not as it was written: {reason}") from reason
        return rows

    def _piece_key(self, key: Key, partition: int, token: str) -> str:
        return str(PieceKey(self._query, *key, partition, token))

    def strays(self, source: str) -> list[str]:
        """Keys of pieces of batches that were not admitted: a run has died before, or is about to admit them."""
        keys = self._keys(source)
        pieces = {str(key): (key.stream, key.id) for key in keys if isinstance(key, PieceKey)}
        batches = (self.get(source, key.number) for key in keys if isinstance(key, PushedBatchKey))
        admitted = {(batch.stream, batch.id) for batch in batches} if pieces else set()
        return [key for key, batch in pieces.items() if batch not in admitted]

    def remove_pieces(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    # -- batches ------------------------------------------------------------------------------------------------------

    def numbers(self, source: str) -> list[int]:
        """Returns the numbers of all batches of a source, in order."""
        return sorted(key.number for key in self._keys(source) if isinstance(key, PushedBatchKey))

    def _keys(self, source: str) -> list[StoredKey | None]:
        return [key_of(text) for text in self._store.list(pushed_prefix(self._query, source))]

    def put(self, source: str, batch: PushedBatch) -> None:
        """Writes a batch; raises AlreadyThere if another driver was faster."""
        content = json.dumps(batch.to_plain()).encode()
        self._store.put(str(PushedBatchKey(self._query, source, batch.number)), [content], new=True)

    def get(self, source: str, number: int) -> PushedBatch:
        name = str(PushedBatchKey(self._query, source, number))
        try:
            return PushedBatch.from_plain(json.loads(bytes(self._store.get(name))))
        except (ValueError, TypeError) as reason:
            raise Damaged(f"{self._store.name}/{name} is not as it was written: {reason}") from reason

    def remove(self, source: str, batch: PushedBatch) -> None:
        """Removes a batch and its pieces; the batch's own file is removed first."""
        pieces = pieces_prefix(self._query, source, batch.stream, batch.id)
        self._store.delete([str(PushedBatchKey(self._query, source, batch.number))])
        self._store.delete(list(self._store.list(pieces)))
