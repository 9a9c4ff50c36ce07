"""A ring of the last messages that a machine took and the effects that it returned, for failure reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.cuts import Persist, Recalled
from seep.protocol.effects import Commit, Effect, Post
from seep.protocol.messages import Data, Retrieved, StateMoved, StoreBackup, ViewChanged
from seep.protocol.view import Incarnation, View

#: The number of messages and answers in a ring.
_SIZE = 200
#: The most characters of one entry as text, and bytes of one machine's entries in a report.
_WIDTH, _DUMPED = 300, 16 << 10

#: The short forms of messages that hold rows, state or a view, which the ring must not keep.
_BRIEF: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Data: lambda m: ("Data", m.sender, m.receiver, m.epoch, m.watermark),
    StateMoved: lambda m: ("StateMoved", m.sender, m.receiver, m.epoch, m.base, len(m.chunks)),
    StoreBackup: lambda m: ("StoreBackup", m.checkpoint.owner, m.checkpoint.epoch, m.checkpoint.base, m.chain),
    Retrieved: lambda m: ("Retrieved", m.asker, m.owner, m.checkpoint and m.checkpoint.epoch, m.stands),
    View: lambda m: ("View", m.version),
    Recalled: lambda m: ("Recalled", len(m.chunks)),
    ViewChanged: lambda m: ("ViewChanged", m.view.version, m.starts),
    Persist: lambda m: ("Persist", m.owner, m.cut, m.base),
    Commit: lambda m: ("Commit", m.sink, m.epoch, m.watermark, m.flush),
}


class MessageRing:
    """The last messages that a machine took, and its answers, in order; they are converted to text on request.

    The thread of its machine writes to it; other threads may read it, and then miss at most the newest entries.
    """

    __slots__ = ("_items",)

    def __init__(self, size: int = _SIZE) -> None:
        #: whether the entry was taken; its sender or receiver, if known; the message or its short form
        self._items: deque[tuple[bool, str, Any]] = deque(maxlen=size)

    def took(self, sender: str, message: object) -> None:
        brief = _BRIEF.get(type(message))
        self._items.append((True, sender, message if brief is None else brief(message)))

    def answered(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is Post:
                self._note_post(effect)
            else:
                brief = _BRIEF.get(type(effect))
                self._items.append((False, "", effect if brief is None else brief(effect)))

    def said(self, what: object) -> None:
        """Records an answer that is not an effect of the protocol."""
        self._items.append((False, "", what))

    def _note_post(self, effect: Post) -> None:
        brief = _BRIEF.get(type(effect.body))
        self._items.append((False, effect.to, effect.body if brief is None else brief(effect.body)))

    def texts(self) -> list[str]:
        """Returns the entries as lines, oldest first: `← manager: Tick(…)` was taken, `→ n2: Trim(…)` was answered."""
        return [_text(*item) for item in list(self._items)]


def _text(was_taken: bool, who: str, what: object) -> str:
    line = f"{'←' if was_taken else '→'} {who + ': ' if who else ''}{_words(what)}"
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]} …"


def _words(what: object) -> str:
    """Returns an entry as text, with instances and incarnations in their usual notation."""
    if isinstance(what, Incarnation | InstanceId | Event | str):
        return str(what)
    if type(what) is tuple and what and isinstance(what[0], str) and what[0] in _NAMES:
        return f"{what[0]}({', '.join(map(_words, what[1:]))})"
    if isinstance(what, tuple):
        name = type(what).__name__ if hasattr(what, "_fields") else ""
        return f"{name}({', '.join(map(_words, what))})"
    return repr(what)


_NAMES = frozenset(kind.__name__ for kind in _BRIEF)


def dumped(rings: Mapping[str, MessageRing]) -> dict[str, tuple[str, ...]]:
    """Returns the newest lines of each machine's ring, up to the limit of a report."""
    return {name: _newest(ring.texts()) for name, ring in rings.items()}


def _newest(lines: list[str]) -> tuple[str, ...]:
    room, kept = _DUMPED, deque[str]()
    for line in reversed(lines):
        room -= len(line.encode())
        if room < 0:
            break
        kept.appendleft(line)
    return tuple(kept)
