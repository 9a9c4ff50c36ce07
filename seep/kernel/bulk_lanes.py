"""The bulk lanes of a world: both ends between every two processes, over mail that loses messages of a cut link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from seep.kernel.mail import Carried, Channel, Mail
from seep.protocol.bulk import BulkAcknowledged, BulkFlow, BulkInbox, BulkOutbox

#: The lanes of segments and of acknowledgements, each in the order of sending.
BULK, BULK_BACK = "bulk", "bulk back"


class BulkSizes(Protocol):
    """The sizes of messages and credit."""

    def segments(self) -> int:
        """Returns the number of segments of the next message."""
        ...

    def credit(self) -> int:
        """Returns the most segments that may be unacknowledged between two processes."""
        ...


class BulkLanes:
    """The bulk lanes between all processes; sizes are counted in segments."""

    def __init__(self, mail: Mail, sizes: BulkSizes, is_there: Callable[[str], bool]) -> None:
        self._mail, self._sizes, self._is_there = mail, sizes, is_there
        self._outboxes: dict[tuple[str, str], BulkOutbox[tuple[int, Any]]] = {}
        self._inboxes: dict[tuple[str, str], BulkInbox] = {}

    def post(self, source: str, target: str, flow: BulkFlow, version: int, message: Any) -> None:
        """Sends a message from one process to another."""
        if (outbox := self._outboxes.get((source, target))) is None:
            outbox = self._outboxes[source, target] = BulkOutbox(self._sizes.credit(), 1)
        outbox.add(flow, (version, message), self._sizes.segments())
        self._send(source, target)

    def arrived(self, source: str, target: str, carried: Carried) -> tuple[int, Any] | None:
        """Handles a segment from `source`; returns the message that it completes, if any."""
        segment, message = carried
        if not self._is_there(target):
            return None
        inbox = self._inboxes.setdefault((source, target), BulkInbox())
        is_next = inbox.receive(segment)
        self._mail.send(Channel(target, source, BULK_BACK), BulkAcknowledged(segment.number, inbox.position(segment)))
        return message if is_next and segment.end == segment.size else None

    def acknowledged(self, source: str, target: str, told: BulkAcknowledged) -> None:
        """Handles an acknowledgement of `target` to `source`, which makes room for more."""
        outbox = self._outboxes.get((source, target))
        if outbox is not None and self._is_there(source):
            outbox.acknowledge(*told)
            self._send(source, target)

    def mend(self, source: str, target: str) -> None:
        """Continues after the link is back, from the receiver's position."""
        outbox = self._outboxes.get((source, target))
        if outbox is not None and self._is_there(source) and self._is_there(target):
            outbox.resume(self._inboxes.setdefault((source, target), BulkInbox()).standing())
            self._send(source, target)

    def halfway(self) -> list[tuple[str, str]]:
        """Returns the pairs of processes between which only a part of a message has arrived."""
        return [
            ends
            for ends, outbox in self._outboxes.items()
            if any(transfer.size and 0 < transfer.acknowledged < transfer.size for transfer in outbox.under_way())
        ]

    def remove(self, process: str) -> None:
        """Removes the lanes of a process that has ended."""
        for ends in [ends for ends in (*self._outboxes, *self._inboxes) if process in ends]:
            self._outboxes.pop(ends, None)
            if ends[1] == process:
                self._inboxes.pop(ends, None)

    def _send(self, source: str, target: str) -> None:
        outbox = self._outboxes[source, target]
        while (transfer := outbox.choose()) is not None:
            if transfer.size is None:
                outbox.open(transfer, transfer.nbytes)
            self._mail.send(Channel(source, target, BULK), Carried(outbox.next(transfer), transfer.content))
