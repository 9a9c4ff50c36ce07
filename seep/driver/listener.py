"""Notices of the driver's event loop to the other parts of a run."""

from __future__ import annotations

from seep.channels.letters import LinesLogged
from seep.driver.node_register import NodeRecord
from seep.protocol.cuts import Cut, CutComplete


class RunListener:
    """The base of listeners, which override the notices that they need. These run on the event loop: return at once."""

    def registered(self, record: NodeRecord) -> None:
        """A node has registered, and has got its name."""

    def joined(self, record: NodeRecord) -> None:
        """A node may be used from now on."""

    def lost(self, record: NodeRecord, silent: bool) -> None:
        """A node was given up; if `silent`, only for its silence: its process may still exist."""

    def link(self, node: str, state: str) -> None:
        """The link to a node is `broken`, `refused` or `restored`."""

    def logged(self, node: str, told: LinesLogged) -> None:
        """A node has sent log lines."""

    def notice(self, node: str, seconds: float) -> None:
        """Called with the seconds after which the VM of a node will be taken away."""

    def read(self, source: str) -> None:
        """The source log has new positions of a source operator."""

    def committed(self, epoch: int) -> None:
        """All sinks have committed up to this epoch."""

    def cut(self, cut: Cut, result: CutComplete | str) -> None:
        """A cut is complete, or was abandoned for this reason."""

    def ending(self) -> None:
        """The last epoch is open: the run ends when it is processed."""

    def over(self) -> None:
        """The run has ended: finished, halted, stopped or failed."""


class Listeners(RunListener):
    """Several listeners, notified in the order in which they were added."""

    def __init__(self) -> None:
        self._all: list[RunListener] = []

    def add(self, listener: RunListener) -> None:
        self._all.append(listener)

    def registered(self, record: NodeRecord) -> None:
        for each in self._all:
            each.registered(record)

    def joined(self, record: NodeRecord) -> None:
        for each in self._all:
            each.joined(record)

    def lost(self, record: NodeRecord, silent: bool) -> None:
        for each in self._all:
            each.lost(record, silent)

    def link(self, node: str, state: str) -> None:
        for each in self._all:
            each.link(node, state)

    def logged(self, node: str, told: LinesLogged) -> None:
        for each in self._all:
            each.logged(node, told)

    def notice(self, node: str, seconds: float) -> None:
        for each in self._all:
            each.notice(node, seconds)

    def read(self, source: str) -> None:
        for each in self._all:
            each.read(source)

    def committed(self, epoch: int) -> None:
        for each in self._all:
            each.committed(epoch)

    def cut(self, cut: Cut, result: CutComplete | str) -> None:
        for each in self._all:
            each.cut(cut, result)

    def ending(self) -> None:
        for each in self._all:
            each.ending()

    def over(self) -> None:
        for each in self._all:
            each.over()
