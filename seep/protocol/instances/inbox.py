"""The inbox: messages that have arrived for epochs that are not processed yet."""

from __future__ import annotations

from collections.abc import Iterable

from primitives.graph import InstanceId
from seep.protocol.messages import Data, StateMoved


class Inbox:
    """Aligns whole epochs: one final message from every sender, each counted once."""

    __slots__ = ("_data", "_heard", "_moved", "processed")

    def __init__(self) -> None:
        #: the last epoch that was processed; nothing up to it is accepted
        self.processed = 0
        self._data: dict[int, list[Data]] = {}
        #: exactly the senders of the messages in `_data`
        self._heard: dict[int, set[InstanceId]] = {}
        self._moved: dict[tuple[int, InstanceId], StateMoved] = {}

    def accept(self, message: Data) -> bool:
        """Keeps a message unless it is a duplicate; returns whether it is new."""
        sender = message.sender.instance
        if self.is_duplicate(message.epoch, sender):
            return False
        self._data.setdefault(message.epoch, []).append(message)
        self._heard.setdefault(message.epoch, set()).add(sender)
        return True

    def is_duplicate(self, epoch: int, sender: InstanceId) -> bool:
        return epoch <= self.processed or sender in self._heard.get(epoch, ())

    def accept_state(self, message: StateMoved) -> bool:
        key = (message.epoch, message.sender.instance)
        if message.epoch <= self.processed or key in self._moved:
            return False
        self._moved[key] = message
        return True

    def has_all(self, epoch: int, senders: Iterable[InstanceId]) -> bool:
        heard = self._heard.get(epoch, set())
        return all(sender in heard for sender in senders)

    def take(self, epoch: int) -> list[Data]:
        """Returns the messages of an epoch; its senders stay known, so a late duplicate is still detected."""
        return self._data.pop(epoch, [])

    def take_state(self, epoch: int, origin: InstanceId) -> StateMoved | None:
        return self._moved.pop((epoch, origin), None)

    def close(self, epoch: int) -> None:
        """Forgets an epoch that was processed as a whole."""
        self.processed = epoch
        self._data.pop(epoch, None)
        self._heard.pop(epoch, None)

    def skip_to(self, epoch: int) -> None:
        """Forgets all epochs up to one that need not be processed any more."""
        for passed in [e for e in self._heard if e <= epoch]:
            self.close(passed)
        for key in [k for k in self._moved if k[0] <= epoch]:
            del self._moved[key]
        self.processed = epoch

    def discard(self, sender: InstanceId) -> None:
        """Forgets a sender's messages for epochs that are not open yet: its next incarnation sends them again."""
        for epoch, messages in self._data.items():
            messages[:] = [m for m in messages if m.sender.instance != sender]
            self._heard[epoch].discard(sender)
        for key in [k for k in self._moved if k[1] == sender]:
            del self._moved[key]
