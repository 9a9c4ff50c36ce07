"""The bulk lane: state on its way between two processes, in segments; a connection that breaks costs none twice.

Letters are small and never wait for state. What carries state goes here: cut into segments, with so many bytes on their
way at most as the receiver has not acknowledged (its *credit*), and resumed after a break where the receiver stands.
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

#: Transfers of the same urgency whose segments take turns; later ones wait until one of these is sent.
TOGETHER = 4
#: Of so many segments, one is of the less urgent transfers, so that these go on while others wait for state.
SHARED = 16
#: Of the credit, the part that the less urgent ones may have under way: whatever is urgent comes right behind that.
PART = 8


class BulkKind(StrEnum):
    """What state travels for."""

    RESTORE = "restore"
    HANDOVER = "handover"
    WARM_UP = "warm-up"
    BACKUP = "backup"
    LOOK = "look"


#: Somebody cannot go on before it is there.
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
    """Which bytes of which transfer a segment carries."""

    number: int  #: of the transfer; counts those that one process has begun to send to another
    start: int
    length: int
    size: int  #: of the whole transfer

    @property
    def end(self) -> int:
        return self.start + self.length


class BulkAcknowledged(NamedTuple):
    """The receiver has so many bytes of a transfer; if that is all, it has taken the message."""

    number: int
    position: int


class BulkStanding(NamedTuple):
    """How far a receiver has come: of the transfers up to the `highest`, it has all but those with a position."""

    highest: int
    positions: Mapping[int, int]


class BulkMessage(Generic[Content]):
    """A message on its way."""

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
    """Transfers of one urgency that are not sent to their end."""

    def __init__(self) -> None:
        #: those whose segments take turns, of different flows
        self.active: deque[BulkMessage[Content]] = deque()
        self.waiting: deque[BulkMessage[Content]] = deque()

    def choose(self) -> BulkMessage[Content] | None:
        """Whose turn it is."""
        while self.active and self.active[0].is_sent:  # a late acknowledgement told that it need not be sent again
            self.active.popleft()
        self._fill()
        return self.active[0] if self.active else None

    def turn(self) -> None:
        """The one whose turn it was has had a segment sent."""
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
        """After a break: those that were begun come first, in the order in which they were."""
        never = [transfer for transfer in (*self.active, *self.waiting) if not transfer.number]
        self.active.clear()
        self.waiting = deque([*begun, *never])


class BulkOutbox(Generic[Content]):
    """One process's end of the lane to another: what is still to be sent, and what has not arrived for certain.

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
        """Whose segment is next; None if there is nothing to send, or the receiver has to acknowledge some first."""
        lines = (self._urgent, self._other) if self._turns % SHARED < SHARED - 1 else (self._other, self._urgent)
        return next((found for line in lines if self._has_room(line) and (found := line.choose())), None)

    def _has_room(self, line: _Line[Content]) -> bool:
        """Whether one more segment may be under way; what is not urgent leaves most of the credit to what is."""
        others = sum(each.sent - each.acknowledged for each in self._begun.values() if each.flow.kind not in URGENT)
        if line is self._other and others > max(self._credit // PART, self._segment) - self._segment:
            return False
        return self.unacknowledged <= self._credit - self._segment

    def open(self, transfer: BulkMessage[Content], size: int) -> None:
        """Tells the exact size of a transfer; before its first segment."""
        transfer.size = size

    def drop(self, transfer: BulkMessage[Content]) -> None:
        """Forgets one that was chosen, and cannot be sent at all."""
        self._line(transfer.flow).active.remove(transfer)

    def next(self, transfer: BulkMessage[Content]) -> BulkSegment:
        """The next segment of the transfer that was chosen, which counts as sent from now on."""
        assert transfer.size is not None, "a transfer is opened before its first segment"
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
        """The receiver has so much of a transfer."""
        transfer = self._begun.get(number)
        if transfer is None or position <= transfer.acknowledged:
            return
        transfer.acknowledged = position
        transfer.sent = max(transfer.sent, position)
        if position == transfer.size:
            del self._begun[number]

    def resume(self, standing: BulkStanding) -> None:
        """A new connection: goes on where the receiver stands."""
        for number, transfer in list(self._begun.items()):
            if number <= standing.highest and number not in standing.positions:
                del self._begun[number]
            transfer.sent = transfer.acknowledged = standing.positions.get(number, 0)
        begun = [self._begun[number] for number in sorted(self._begun)]
        for line, is_urgent in ((self._urgent, True), (self._other, False)):
            line.begin_again([each for each in begun if (each.flow.kind in URGENT) is is_urgent])

    @property
    def is_urgent(self) -> bool:
        """Whether somebody waits for something that is under way."""
        return any(transfer.flow.kind in URGENT for transfer in self.under_way())

    @property
    def unacknowledged(self) -> int:
        """Bytes that were sent, and may not have arrived."""
        return sum(transfer.sent - transfer.acknowledged for transfer in self._begun.values())

    def under_way(self) -> Iterator[BulkMessage[Content]]:
        """All that has not arrived for certain."""
        yield from self._begun.values()
        for line in (self._urgent, self._other):
            yield from (transfer for transfer in (*line.active, *line.waiting) if not transfer.number)

    def _line(self, flow: BulkFlow) -> _Line[Content]:
        return self._urgent if flow.kind in URGENT else self._other


class BulkInbox:
    """The other end: which segments bring what is still missing. Each byte counts once, whatever is repeated."""

    def __init__(self) -> None:
        self._highest = 0
        #: of the transfers up to the highest, exactly those that are not here whole
        self._positions: dict[int, int] = {}

    def receive(self, segment: BulkSegment) -> bool:
        """Whether the segment goes on where its transfer stands; others are repetitions, or come after a gap."""
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
        """How much of the segment's transfer is here, after `receive` has looked at it."""
        return self._positions.get(segment.number, segment.size)

    def restart(self, number: int) -> None:
        """What has come of a transfer was damaged: it has to come again."""
        self._positions[number] = 0

    def standing(self) -> BulkStanding:
        """What to tell the sender when it connects again."""
        return BulkStanding(self._highest, dict(self._positions))
