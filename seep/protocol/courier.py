"""The courier: delivers letters between two processes once and in order, over links that break and reconnect.

Letters that are not acknowledged wait in an outbox, like all other messages that may have to be sent again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from primitives.outbox import Outbox


class LetterFrame(NamedTuple):
    """A numbered letter, or only an acknowledgement (number 0)."""

    number: int
    acknowledged: int  #: all numbers up to this one have arrived
    version: int  #: of the view it was written under
    body: Any


class Courier:
    """One end of a connection to one peer."""

    __slots__ = ("_arrived", "_outbox", "_owed", "_sent")

    #: how many letters may arrive before an acknowledgement is sent for its own sake
    QUIET = 16

    def __init__(self) -> None:
        self._outbox: Outbox[LetterFrame] = Outbox()
        self._sent = 0
        self._arrived = 0
        self._owed = 0

    def post(self, version: int, body: Any) -> LetterFrame:
        """Returns the frame that carries a letter, and keeps it until the peer has received it."""
        self._sent += 1
        frame = LetterFrame(self._sent, self._arrived, version, body)
        self._owed = 0
        self._outbox.append(self._sent, frame)
        return frame

    def receive(self, frame: LetterFrame) -> bool:
        """Returns whether the frame brings the next letter; others are repeated, or follow a gap that is filled."""
        self._outbox.trim(frame.acknowledged)
        if frame.number != self._arrived + 1:
            return False
        self._arrived = frame.number
        self._owed += 1
        return True

    def acknowledgement(self, at_least: int = QUIET) -> LetterFrame | None:
        """Returns an acknowledgement, if at least `at_least` letters are not acknowledged."""
        if self._owed < at_least:
            return None
        self._owed = 0
        return LetterFrame(0, self._arrived, 0, None)

    def again(self) -> list[LetterFrame]:
        """Returns the frames that may not have arrived, to be sent again after the link has reconnected."""
        return [frame for _, frame in self._outbox.entries()]
