"""The keeper: sees to it that every pushed piece is in two places, and that none is kept for longer than needed."""

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

#: In how many places a piece is, at least.
COPIES = 2


class PieceKeeper:
    """Knows the nodes; what it does may wait for them, so it is not for the manager's thread."""

    def __init__(self, process: ManagerProcess, catalogue: Catalogue[Manifest] | None) -> None:
        self._process, self._catalogue = process, catalogue

    @property
    def stores(self) -> bool:
        """Whether nodes put what is pushed to them into storage too."""
        return self._catalogue is not None

    def nodes(self) -> list[str]:
        return sorted(self._process.live_nodes())

    # -- where pieces go ----------------------------------------------------------------------------------------------

    def places(self, source: str, slot: int) -> list[list[Any]]:
        """Nodes that a piece of a slot is pushed to, with their addresses: first of all the one that will read it."""
        home, nodes = self._process.home_of(source, slot), self.nodes()
        first = home if home in nodes else nodes[0]
        chosen = [first, *self._others(first, nodes)][: 1 if self.stores else COPIES]
        return [[name, *self._process.nodes[name].address] for name in chosen]

    def _others(self, first: str, nodes: list[str]) -> list[str]:
        """All other nodes in the order of a ring, those of other VMs before."""
        at = nodes.index(first)
        ring = nodes[at + 1 :] + nodes[:at]
        return sorted(ring, key=lambda name: self._process.nodes[name].vm == self._process.nodes[first].vm)

    # -- that they stay there -----------------------------------------------------------------------------------------

    def secured(self, key: Key, piece: PushedPiece, nodes: Iterable[str]) -> PushedPiece:
        """The piece with the places that it is in by now; copied, if there are too few. Without any, it is lost."""
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
        except EnvironmentFault:  # it is tried again, with others
            return False

    def secure(self, ledger: FeedLedger) -> None:
        """Copies what was on nodes that are gone; EnvironmentFault if it was on no others."""
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

    # -- and for how long ---------------------------------------------------------------------------------------------

    def trim(self, ledger: FeedLedger, slots: int) -> None:
        """Lets go of what no epoch that can be asked for again has to read."""
        oldest = self._process.oldest_needed(ledger.source)
        if len(read_up_to(oldest)) >= slots:
            ledger.trim(min(read_up_to(oldest)))

    def trim_spool(self, ledger: FeedLedger) -> None:
        """Lets go in storage of what no checkpoint there has to read."""
        if self._catalogue is None:
            return
        needed = [number for manifest in self._catalogue.complete() for number in _needed(manifest, ledger.source)]
        if needed:
            ledger.trim_spool(min(needed))


def _needed(manifest: Manifest, source: str) -> list[int]:
    """The batches from which a run reads on that begins with this checkpoint; the first, where nothing was read."""
    first = [manifest.pushed[source]] if source in manifest.pushed else []
    return read_up_to(manifest.sources.get(source, {})) or first
