"""What may be sent at once, by the very thread that has it, instead of by a link's own."""

from __future__ import annotations

import threading

from seep.protocol.courier import LetterFrame
from seep.protocol.messages import Committed, Logged, OffsetsRead, Tick, Trim

#: Letters that come with every epoch, and are short.
_SMALL = (Tick, Logged, OffsetsRead, Committed, Trim)

_threads = threading.local()


def only_read() -> None:
    """Said by a thread that takes in what peers send: it must never wait for one of them to take in something.

    If it did, two processes could wait for each other for good.
    """
    _threads.reads = True


def may_send() -> bool:
    """Whether this thread may send by itself."""
    return not getattr(_threads, "reads", False)


def is_small(frame: LetterFrame) -> bool:
    """Whether a frame is worth it."""
    return isinstance(frame.body, _SMALL)
