"""The keeper: ensures that every pushed piece is in two places, and drops pieces that are not needed any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from formats.manifest import Manifest
from primitives.errors import EnvironmentFault
from seep.driver.driver import ManagerProcess
from seep.protocol.view import STORAGE
from seep.spark.inlet.ledger import FeedLedger, read_up_to
from seep.spark.inlet.pieces import Key, PushedBatch, PushedPiece
from seep.storage.catalogue import Catalogue

#: The number of places in which a piece must be.
COPIES = 2


class PieceKeeper:
    """Copies and drops pieces. It may wait for nodes, so it must not be called on the manager's thread."""

    def __init__(self, process: ManagerProcess, catalogue: Catalogue[Manifest] | None) -> None:
        self._process, self._catalogue = process, catalogue

    @property
    def stores(self) -> bool:
        """Whether nodes also store pushed pieces in the run's storage."""
        return self._catalogue is not None

    def nodes(self) -> list[str]:
        return sorted(self._process.live_nodes())

    # -- choosing nodes -----------------------------------------------------------------------------------------------

    def places(self, source: str, slot: int) -> list[list[Any]]:
        """Returns the nodes to which a piece of a slot is pushed, with addresses; the node that reads it is first."""
        home, nodes = self._process.home_of(source, slot), self.nodes()
        first = home if home in nodes else nodes[0]
        chosen = [first, *self._others(first, nodes)][: 1 if self.stores else COPIES]
        return [[name, *self._process.nodes[name].address] for name in chosen]

    def _others(self, first: str, nodes: list[str]) -> list[str]:
        """Returns all other nodes in ring order, those on other VMs first."""
        at = nodes.index(first)
        ring = nodes[at + 1 :] + nodes[:at]
        return sorted(ring, key=lambda name: self._process.nodes[name].vm == self._process.nodes[first].vm)

    # -- copying ------------------------------------------------------------------------------------------------------

    def secured(self, key: Key, piece: PushedPiece, nodes: Iterable[str]) -> PushedPiece:
        """Copies a piece if it is in too few places; returns it with its places. Without any, it is lost."""
        live = [*nodes, STORAGE]
        holders = [holder for holder in piece.holders if holder in live]
        if not piece.rows or not holders or STORAGE in holders or len(holders) >= COPIES:
            return piece._replace(holders=tuple(holders))
        for node in self._others(holders[0], [node for node in live if node != STORAGE]):
            if len(holders) < COPIES and self._copied(key, piece._replace(holders=tuple(holders)), node):
                holders.append(node)
        return piece._replace(holders=tuple(holders))

    def _copied(self, key: Key, piece: PushedPiece, node: str) -> bool:
        body = {"key": list(key), "piece": piece.to_plain()}
        try:
            return bool(self._process.call_node(node, "copy piece", body))
        except EnvironmentFault:  # other nodes are tried
            return False

    def secure(self, ledger: FeedLedger) -> None:
        """Copies the pieces of lost nodes; raises EnvironmentFault if a piece was on no other node."""
        nodes = self.nodes()
        for batch in ledger.kept():
            secured = self._secured(ledger.key(batch), batch, nodes)
            if secured != batch:
                ledger.replace(secured)

    def _secured(self, key: Key, batch: PushedBatch, nodes: list[str]) -> PushedBatch:
        secured = batch._replace(pieces=tuple(self.secured(key, piece, nodes) for piece in batch.pieces))
        for piece in secured.pieces:
            if piece.rows and not piece.holders:
                raise EnvironmentFault(
                    f"source {key.source!r}: all nodes that kept partition {piece.partition} of batch {key.id} are "
                    "lost; what Spark has been told is done cannot be read again. With storage this cannot happen"
                )
        return secured

    # -- dropping -----------------------------------------------------------------------------------------------------

    def trim(self, ledger: FeedLedger, slots: int) -> None:
        """Drops batches that no replay can need."""
        oldest = self._process.oldest_needed(ledger.source)
        if len(read_up_to(oldest)) >= slots:
            ledger.trim(min(read_up_to(oldest)))

    def trim_spool(self, ledger: FeedLedger) -> None:
        """Drops batches from storage that no checkpoint there needs."""
        if self._catalogue is None:
            return
        needed = [number for manifest in self._catalogue.complete() for number in _needed(manifest, ledger.source)]
        if needed:
            ledger.trim_spool(min(needed))


def _needed(manifest: Manifest, source: str) -> list[int]:
    """Returns the batches from which a run would read that begins from this checkpoint."""
    first = [manifest.pushed[source]] if source in manifest.pushed else []
    return read_up_to(manifest.sources.get(source, {})) or first
