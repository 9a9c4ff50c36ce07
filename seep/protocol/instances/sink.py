"""A sink instance: commits whole epochs to an external store, which also tells its successor where to continue."""

from __future__ import annotations

from collections.abc import Mapping

from primitives.graph import Edge
from seep.protocol.effects import Commit, Effect, OpenSink
from seep.protocol.instances.instance import Batch, Instance, InstancePhase, Surroundings, Work
from seep.protocol.logic import Piece
from seep.protocol.messages import Committed, FromCommits
from seep.protocol.view import MANAGER, Incarnation


class SinkOpened(int):
    """The shell's answer that the store is open and earlier incarnations are fenced, with the last committed epoch."""


class CommitAccepted(int):
    """The shell's answer that the store has committed this epoch."""


class CommitRefused(int):
    """The shell's answer that the store is open for a later incarnation."""


class SinkInstance(Instance[Batch]):
    """An instance of a sink; it is safe up to the last committed epoch."""

    def __init__(self, me: Incarnation, given: Surroundings[Batch]) -> None:
        super().__init__(me, given)
        self._least = 0
        self._handlers |= {
            SinkOpened: self._on_opened,
            CommitAccepted: self._on_accepted,
            CommitRefused: self._on_refused,
        }

    def start(self, origin: FromCommits, trimmed: int = 0) -> list[Effect]:  # noqa: ARG002  (it has no receivers)
        self._least = origin.epoch
        self._effects.append(OpenSink(self.me))
        return self._drain()

    def _on_opened(self, committed: SinkOpened) -> None:
        if self.phase is InstancePhase.RESTORING:
            epoch = max(int(committed), self._least)
            self._post(MANAGER, Committed(self.me, epoch))
            self._begin(epoch)

    def _compute(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:  # noqa: ARG002
        return {}  # a sink's results are in its store

    def _deliver(self, work: Work[Batch]) -> None:
        cut = self.view.cut
        flush = cut is not None and cut.epoch == work.epoch and cut.only is None
        self._effects.append(Commit(self.me, work.epoch, work.inputs, work.watermark, work.created, flush))

    def _on_accepted(self, epoch: CommitAccepted) -> None:
        self._post(MANAGER, Committed(self.me, int(epoch)))

    def _on_refused(self, _: CommitRefused) -> None:
        self.halt()
