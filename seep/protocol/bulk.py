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
#: One of so many segments belongs to a less urgent message, so that these make progress beside urgent ones.
SHARED = 16
#: Less urgent messages may use one of so many parts of the credit, so that little is ahead of an urgent one.
PART = 8


class BulkKind(StrEnum):
    """Why state is sent."""

    RESTORE = "restore"  #: to a new incarnation, from a holder
    HANDOVER = "handover"  #: to a new owner, from the old one
    WARM_UP = "warm-up"  #: to a new owner, from a holder, ahead of a handover
    BACKUP = "backup"  #: to a holder, from the owner or from the holder before it in the chain
    LOOK = "look"  #: to the manager, for somebody who wants to see it


#: Kinds for which the receiver waits.
URGENT = frozenset({BulkKind.RESTORE, BulkKind.HANDOVER})


class BulkFlow(NamedTuple):
    """Messages of one flow arrive in the order of sending; those of different flows may overtake each other."""

    kind: BulkKind
    subject: object


def flow_of(message: object) -> BulkFlow | None:
    """The flow of a message that carries state; None for letters."""
    match message:
        case StoreBackup(checkpoint):
            return BulkFlow(BulkKind.BACKUP, checkpoint.owner)
        case Retrieved(asker, checkpoint=Checkpoint(), warm_up=warm_up, stands=False):
            return BulkFlow(BulkKind.RESTORE if warm_up is None else BulkKind.WARM_UP, asker)
        case StateMoved(sender, receiver):
            return BulkFlow(BulkKind.HANDOVER, (sender, receiver))
        case Persisted(owner, part=CutPart(reference=tuple())):  # not in storage, but somebody wants to see it
            return BulkFlow(BulkKind.LOOK, owner)
    return None


def state_bytes(message: object) -> int:
    """About how many bytes of state a message carries."""
    match message:
        case StoreBackup(checkpoint) | Retrieved(checkpoint=Checkpoint() as checkpoint):
            return checkpoint.nbytes
        case StateMoved(chunks=chunks) | Persisted(part=CutPart(reference=tuple() as chunks)):
            return sum(map(nbytes_of, chunks))
    return 0


class BulkSegment(NamedTuple):
    """Which bytes of which message a segment carries."""

    number: int  #: of the message; counts those that one process has begun to send to another
    start: int
    length: int
    size: int  #: of the whole message

    @property
    def end(self) -> int:
        return self.start + self.length


class BulkAcknowledged(NamedTuple):
    """The receiver has so many bytes of a message; if that is all, it has processed the message."""

    number: int
    position: int


class BulkStanding(NamedTuple):
    """What a receiver has: all messages up to the number `highest`, but of those with a position only so many bytes."""

    highest: int
    positions: Mapping[int, int]


class BulkMessage(Generic[Content]):
    """A message that has not arrived."""

    __slots__ = ("acknowledged", "content", "flow", "nbytes", "number", "sent", "size")

    def __init__(self, flow: BulkFlow, content: Content, nbytes: int) -> None:
        self.flow = flow
        self.content = content
        self.nbytes = nbytes  #: about so many, until its size is known
        self.number = 0  #: given when it is begun
        self.size: int | None = None
        self.sent = self.acknowledged = 0

    @property
    def is_sent(self) -> bool:
        return self.sent == self.size

    @property
    def left(self) -> int:
        """Bytes that have not arrived."""
        return self.nbytes if self.size is None else self.size - self.acknowledged


class _Line(Generic[Content]):
    """Messages of one urgency that are not sent completely."""

    def __init__(self) -> None:
        #: those whose segments take turns; all of different flows
        self.active: deque[BulkMessage[Content]] = deque()
        self.waiting: deque[BulkMessage[Content]] = deque()

    def choose(self) -> BulkMessage[Content] | None:
        """The message whose turn it is."""
        while self.active and self.active[0].is_sent:  # a late acknowledgement told that it need not be sent again
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
        """After a break: puts the messages that were begun first, in the order of their numbers."""
        never = [transfer for transfer in (*self.active, *self.waiting) if not transfer.number]
        self.active.clear()
        self.waiting = deque([*begun, *never])


class BulkOutbox(Generic[Content]):
    """The sender's end of a lane: messages that wait, and those that are not acknowledged.

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
        """A segment has `segment` bytes at most; not more than `credit`, which is no less, are under way."""
        self._credit, self._segment = credit, segment
        self._urgent, self._other = _Line[Content](), _Line[Content]()
        #: by number: exactly those that were begun, and have not arrived whole
        self._begun: dict[int, BulkMessage[Content]] = {}
        self._last = 0
        self._turns = 0

    def add(self, flow: BulkFlow, content: Content, nbytes: int) -> None:
        """Takes a message of about `nbytes` bytes; its order in its flow is that of these calls."""
        self._line(flow).waiting.append(BulkMessage(flow, content, nbytes))

    def choose(self) -> BulkMessage[Content] | None:
        """The message whose segment is next; None if there is nothing to send, or no credit left."""
        lines = (self._urgent, self._other) if self._turns % SHARED < SHARED - 1 else (self._other, self._urgent)
        return next((found for line in lines if self._has_room(line) and (found := line.choose())), None)

    def _has_room(self, line: _Line[Content]) -> bool:
        """Whether the credit suffices for one more segment; less urgent messages have a part of it only."""
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
        """The next segment of the message that was chosen; it counts as sent."""
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
        """Notes that the receiver has so many bytes of a message."""
        transfer = self._begun.get(number)
        if transfer is None or position <= transfer.acknowledged:
            return
        transfer.acknowledged = position
        transfer.sent = max(transfer.sent, position)
        if position == transfer.size:
            del self._begun[number]

    def resume(self, standing: BulkStanding) -> None:
        """On a new connection: goes on where the receiver is."""
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
        """Bytes that were sent, and may not have arrived."""
        return sum(transfer.sent - transfer.acknowledged for transfer in self._begun.values())

    def under_way(self) -> Iterator[BulkMessage[Content]]:
        """The messages that may not have arrived."""
        yield from self._begun.values()
        for line in (self._urgent, self._other):
            yield from (transfer for transfer in (*line.active, *line.waiting) if not transfer.number)

    def _line(self, flow: BulkFlow) -> _Line[Content]:
        return self._urgent if flow.kind in URGENT else self._other


class BulkInbox:
    """The receiver's end of a lane: decides which segments are new. Each byte is accepted once."""

    def __init__(self) -> None:
        self._highest = 0
        #: of the messages up to the highest, exactly those that are not complete
        self._positions: dict[int, int] = {}

    def receive(self, segment: BulkSegment) -> bool:
        """Accepts a segment that continues its message; others are repeated, or come after a gap. Returns whether."""
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
        """How many bytes of the segment's message are here, after `receive`."""
        return self._positions.get(segment.number, segment.size)

    def restart(self, number: int) -> None:
        """Discards what has arrived of a message, because it is damaged."""
        self._positions[number] = 0

    def standing(self) -> BulkStanding:
        """What to tell the sender when it connects again."""
        return BulkStanding(self._highest, dict(self._positions))
