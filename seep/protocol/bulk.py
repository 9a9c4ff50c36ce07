"""The bulk lane: messages that carry state, in segments, beside the letters between two processes.

Letters are small and never wait for state. A message with state is cut into segments. The bytes that the receiver has
not acknowledged are limited by the *credit*. After a connection broke, the sender goes on where the receiver is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from primitives.checkpoint import Checkpoint
from primitives.outbox import nbytes_of
from seep.protocol.cuts import CutPart
from seep.protocol.messages import Persisted, Retrieved, StateMoved, StoreBackup

Content = TypeVar("Content")

#: Messages of the same urgency whose segments take turns; later ones wait until one of these is sent.
TOGETHER = 4
#: One of `SHARED` segments belongs to a less urgent message, so that these make progress beside urgent ones.
SHARED = 16
#: Less urgent messages may use one of `PART` parts of the credit, so that little is ahead of an urgent one.
PART = 8


class BulkKind(StrEnum):
    """The reason for sending state."""

    RESTORE = "restore"  #: to a new incarnation, from a holder
    HANDOVER = "handover"  #: to a new owner, from the old one
    WARM_UP = "warm-up"  #: to a new owner, from a holder, ahead of a handover
    BACKUP = "backup"  #: to a holder, from the owner or from the holder before it in the chain
    LOOK = "look"  #: to the manager, for a user who inspects it


#: Kinds for which the receiver waits.
URGENT = frozenset({BulkKind.RESTORE, BulkKind.HANDOVER})


class BulkFlow(NamedTuple):
    """The messages that keep their order of sending; messages of different flows may overtake each other."""

    kind: BulkKind
    subject: object


def flow_of(message: object) -> BulkFlow | None:
    """Returns the flow of a message that carries state; None for letters."""
    match message:
        case StoreBackup(checkpoint):
            return BulkFlow(BulkKind.BACKUP, checkpoint.owner)
        case Retrieved(asker, checkpoint=Checkpoint(), warm_up=warm_up, stands=False):
            return BulkFlow(BulkKind.RESTORE if warm_up is None else BulkKind.WARM_UP, asker)
        case StateMoved(sender, receiver):
            return BulkFlow(BulkKind.HANDOVER, (sender, receiver))
        case Persisted(owner, part=CutPart(reference=tuple())):  # state that a user inspects; not in storage
            return BulkFlow(BulkKind.LOOK, owner)
    return None


def state_bytes(message: object) -> int:
    """Returns the approximate number of bytes of state in a message."""
    match message:
        case StoreBackup(checkpoint) | Retrieved(checkpoint=Checkpoint() as checkpoint):
            return checkpoint.nbytes
        case StateMoved(chunks=chunks) | Persisted(part=CutPart(reference=tuple() as chunks)):
            return sum(map(nbytes_of, chunks))
    return 0


class BulkSegment(NamedTuple):
    """The position of a segment in its message."""

    number: int  #: of the message; counts those that one process has begun to send to another
    start: int
    length: int
    size: int  #: of the whole message

    @property
    def end(self) -> int:
        return self.start + self.length


class BulkAcknowledged(NamedTuple):
    """The receiver has the bytes of a message up to `position`; if these are all, it has processed the message."""

    number: int
    position: int


class BulkStanding(NamedTuple):
    """What a receiver has: all messages up to `highest`; those in `positions` only up to the given byte."""

    highest: int
    positions: Mapping[int, int]


class BulkMessage(Generic[Content]):
    """A message that has not arrived."""

    __slots__ = ("acknowledged", "content", "flow", "nbytes", "number", "sent", "size")

    def __init__(self, flow: BulkFlow, content: Content, nbytes: int) -> None:
        self.flow = flow
        self.content = content
        self.nbytes = nbytes  #: an estimate, until its size is known
        self.number = 0  #: assigned when its first segment is sent
        self.size: int | None = None
        self.sent = self.acknowledged = 0

    @property
    def is_sent(self) -> bool:
        return self.sent == self.size

    @property
    def left(self) -> int:
        """The number of bytes that have not arrived."""
        return self.nbytes if self.size is None else self.size - self.acknowledged


class _Line(Generic[Content]):
    """The messages of one urgency that are not sent completely."""

    def __init__(self) -> None:
        #: the messages whose segments take turns; all of different flows
        self.active: deque[BulkMessage[Content]] = deque()
        self.waiting: deque[BulkMessage[Content]] = deque()

    def choose(self) -> BulkMessage[Content] | None:
        """Returns the message whose turn it is."""
        while self.active and self.active[0].is_sent:  # a late acknowledgement showed that it need not be sent again
            self.active.popleft()
        self._fill()
        return self.active[0] if self.active else None

    def turn(self) -> None:
        """Gives the turn to the next message, after a segment was sent."""
        transfer = self.active.popleft()
        if not transfer.is_sent:
            self.active.append(transfer)

    def _fill(self) -> None:
        flows = {transfer.flow for transfer in self.active}
        passed: list[BulkMessage[Content]] = []
        while self.waiting and len(self.active) < TOGETHER:
            transfer = self.waiting.popleft()
            if not transfer.is_sent:
                (passed if transfer.flow in flows else self.active).append(transfer)
                flows.add(transfer.flow)
        self.waiting.extendleft(reversed(passed))

    def begin_again(self, begun: list[BulkMessage[Content]]) -> None:
        """Puts the messages that were begun first, in the order of their numbers, after the connection broke."""
        never = [transfer for transfer in (*self.active, *self.waiting) if not transfer.number]
        self.active.clear()
        self.waiting = deque([*begun, *never])


class BulkOutbox(Generic[Content]):
    """The sender's end of a lane: messages that wait, and messages that are not acknowledged.

    >>> outbox = BulkOutbox[str](credit=4, segment=2)
    >>> outbox.add(BulkFlow(BulkKind.RESTORE, "counter[0]"), "state", 5)
    >>> transfer = outbox.choose()
    >>> outbox.open(transfer, 5)
    >>> [outbox.next(transfer)[1:3] for _ in range(2)], outbox.choose() is None  # no more than the credit
    ([(0, 2), (2, 2)], True)
    >>> outbox.resume(BulkStanding(1, {1: 2}))  # the connection broke; the receiver has the first segment
    >>> outbox.next(outbox.choose())
    BulkSegment(number=1, start=2, length=2, size=5)
    """

    def __init__(self, credit: int, segment: int) -> None:
        """Limits a segment to `segment` bytes, and unacknowledged bytes to `credit`, which must not be less."""
        self._credit, self._segment = credit, segment
        self._urgent, self._other = _Line[Content](), _Line[Content]()
        #: by number: exactly the messages that were begun, and have not arrived whole
        self._begun: dict[int, BulkMessage[Content]] = {}
        self._last = 0
        self._turns = 0

    def add(self, flow: BulkFlow, content: Content, nbytes: int) -> None:
        """Adds a message of about `nbytes` bytes; the messages of a flow are sent in the order of these calls."""
        self._line(flow).waiting.append(BulkMessage(flow, content, nbytes))

    def choose(self) -> BulkMessage[Content] | None:
        """Returns the message whose segment is next; None if there is nothing to send, or no credit left."""
        lines = (self._urgent, self._other) if self._turns % SHARED < SHARED - 1 else (self._other, self._urgent)
        return next((found for line in lines if self._has_room(line) and (found := line.choose())), None)

    def _has_room(self, line: _Line[Content]) -> bool:
        """Returns whether the credit suffices for one more segment; less urgent messages may use a part of it only."""
        others = sum(each.sent - each.acknowledged for each in self._begun.values() if each.flow.kind not in URGENT)
        if line is self._other and others > max(self._credit // PART, self._segment) - self._segment:
            return False
        return self.unacknowledged <= self._credit - self._segment

    def open(self, transfer: BulkMessage[Content], size: int) -> None:
        """Sets the exact size of a message, before its first segment."""
        transfer.size = size

    def drop(self, transfer: BulkMessage[Content]) -> None:
        """Removes a message that was chosen and cannot be sent."""
        self._line(transfer.flow).active.remove(transfer)

    def next(self, transfer: BulkMessage[Content]) -> BulkSegment:
        """Returns the next segment of the message that was chosen, and counts it as sent."""
        assert transfer.size is not None, "a message is opened before its first segment"
        if not transfer.number:
            self._last += 1
            transfer.number = self._last
            self._begun[self._last] = transfer
        length = min(self._segment, transfer.size - transfer.sent)
        segment = BulkSegment(transfer.number, transfer.sent, length, transfer.size)
        transfer.sent += length
        self._turns += 1
        self._line(transfer.flow).turn()
        return segment

    def acknowledge(self, number: int, position: int) -> None:
        """Records that the receiver has the bytes of a message up to `position`."""
        transfer = self._begun.get(number)
        if transfer is None or position <= transfer.acknowledged:
            return
        transfer.acknowledged = position
        transfer.sent = max(transfer.sent, position)
        if position == transfer.size:
            del self._begun[number]

    def resume(self, standing: BulkStanding) -> None:
        """Continues on a new connection from what the receiver has."""
        for number, transfer in list(self._begun.items()):
            if number <= standing.highest and number not in standing.positions:
                del self._begun[number]
            transfer.sent = transfer.acknowledged = standing.positions.get(number, 0)
        begun = [self._begun[number] for number in sorted(self._begun)]
        for line, is_urgent in ((self._urgent, True), (self._other, False)):
            line.begin_again([each for each in begun if (each.flow.kind in URGENT) is is_urgent])

    @property
    def is_urgent(self) -> bool:
        """Whether a receiver waits for a message that has not arrived."""
        return any(transfer.flow.kind in URGENT for transfer in self.under_way())

    @property
    def unacknowledged(self) -> int:
        """The number of bytes that were sent and may not have arrived."""
        return sum(transfer.sent - transfer.acknowledged for transfer in self._begun.values())

    def under_way(self) -> Iterator[BulkMessage[Content]]:
        """Yields the messages that may not have arrived."""
        yield from self._begun.values()
        for line in (self._urgent, self._other):
            yield from (transfer for transfer in (*line.active, *line.waiting) if not transfer.number)

    def _line(self, flow: BulkFlow) -> _Line[Content]:
        return self._urgent if flow.kind in URGENT else self._other


class BulkInbox:
    """The receiver's end of a lane: decides which segments are new. Each byte is accepted once."""

    def __init__(self) -> None:
        self._highest = 0
        #: number -> bytes received: exactly the messages up to the highest that are not complete
        self._positions: dict[int, int] = {}

    def receive(self, segment: BulkSegment) -> bool:
        """Returns whether a segment continues its message, and is accepted; others are repeated or follow a gap."""
        number = segment.number
        if number > self._highest:
            self._positions |= dict.fromkeys(range(self._highest + 1, number + 1), 0)
            self._highest = number
        if self._positions.get(number) != segment.start:
            return False
        self._positions[number] = segment.end
        if segment.end == segment.size:
            del self._positions[number]
        return True

    def position(self, segment: BulkSegment) -> int:
        """Returns how many bytes of the segment's message have arrived, after `receive`."""
        return self._positions.get(segment.number, segment.size)

    def restart(self, number: int) -> None:
        """Discards the bytes of a damaged message."""
        self._positions[number] = 0

    def standing(self) -> BulkStanding:
        """Returns what to tell the sender when it connects again."""
        return BulkStanding(self._highest, dict(self._positions))
