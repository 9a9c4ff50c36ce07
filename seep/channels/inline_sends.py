"""Inline sends: small letters that the calling thread sends itself, instead of the link's sender thread."""

from __future__ import annotations

import threading

from seep.protocol.courier import LetterFrame
from seep.protocol.messages import Committed, Logged, OffsetsRead, Tick, Trim

#: Letters that are sent in every epoch, and are short.
_SMALL = (Tick, Logged, OffsetsRead, Committed, Trim)

_threads = threading.local()


def only_read() -> None:
    """Marks this thread as a receiver, which must never wait for a peer to receive something.

    If it did, two processes could wait for each other for ever.
    """
    _threads.reads = True


def may_send() -> bool:
    """Whether this thread may send inline."""
    return not getattr(_threads, "reads", False)


def is_small(frame: LetterFrame) -> bool:
    """Whether a frame is small enough for an inline send."""
    return isinstance(frame.body, _SMALL)
