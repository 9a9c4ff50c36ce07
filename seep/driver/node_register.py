"""The register of a run's nodes: the nodes that have registered, have joined, and were given up."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seep.channels.port import Address
from seep.channels.process import ProcessId

#: The number of lost nodes that are remembered; the files of earlier ones are removed.
_LOST = 1000


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node that has registered."""

    name: str
    order: str  #: the order of its task
    process: ProcessId
    address: Address
    directory: str  #: the directory of its files

    @property
    def vm(self) -> str:
        """The host, which it shares with nodes that may be lost together with it."""
        return self.address.host


class NodeRegister:
    """The nodes of a run; for the event loop. Other threads may read `records`, which is replaced, never changed.

    >>> register = NodeRegister()
    >>> body = {"order": "o1", "process": ["here", 1, 0.0], "address": ["127.0.0.1", 1], "directory": "/tmp/n"}
    >>> register.enter(body).name, register.waiting
    ('n1', {'n1'})
    >>> register.joined("n1").order, register.waiting
    ('o1', set())
    """

    def __init__(self) -> None:
        #: registered nodes by name, without those given up long ago
        self.records: Mapping[str, NodeRecord] = {}
        self._names = itertools.count(1)
        self._joined: set[str] = set()
        self._lost: deque[str] = deque()  #: nodes that were given up, and are still in `records`

    @property
    def waiting(self) -> set[str]:
        """The nodes that have registered, but not joined yet."""
        return self.records.keys() - self._joined

    def of_order(self, order: str) -> list[NodeRecord]:
        return [record for record in self.records.values() if record.order == order]

    def enter(self, body: Mapping[str, Any]) -> NodeRecord:
        """Registers a node under a new name."""
        name, address = f"n{next(self._names)}", Address(*body["address"])
        record = NodeRecord(name, body["order"], ProcessId(*body["process"]), address, body["directory"])
        self.records = {**self.records, name: record}
        return record

    def joined(self, name: str) -> NodeRecord:
        self._joined.add(name)
        return self.records[name]

    def lost(self, name: str) -> NodeRecord | None:
        """Records a lost node. Returns one that was lost long ago and is forgotten now, if there is one."""
        self._lost.append(name)
        if len(self._lost) <= _LOST:
            return None
        forgotten = self.records[self._lost.popleft()]
        self.records = {name: record for name, record in self.records.items() if name != forgotten.name}
        self._joined.discard(forgotten.name)
        return forgotten
