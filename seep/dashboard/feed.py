"""The feed: the status of a run for all viewers of its page, as server-sent events; one thread asks and encodes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from primitives.errors import EnvironmentFault, SeepError
from seep.dashboard.encoding import json_bytes
from seep.dashboard.guard import Log
from seep.dashboard.requests import Answering
from seep.threads.worker import Worker

#: Seconds between two pictures.
EVERY = 1.0
#: After a picture, so many times the CPU time that it took passes before the next one: more instances, fewer pictures.
_REST = 60
#: The most viewers at a time.
VIEWERS = 32
#: The most pictures that wait for a viewer; an older one gives way to a newer one.
_WAITING = 2
#: Seconds after which a viewer without a picture gets a comment, which shows that the connection lives.
_SILENCE = 15.0
_COMMENT = b": the run has nothing new\n\n"
_ALIVE = ("starting", "running")


class Viewer:
    """One viewer of the page: the newest pictures that it has not got. For the event loop of its connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting = deque[bytes](maxlen=_WAITING)
        self._is_over = False
        self._news = asyncio.Event()

    def show(self, picture: bytes, is_last: bool = False) -> None:
        """Gives the viewer a picture; for any thread."""
        with suppress(RuntimeError):  # its event loop is closed
            self._loop.call_soon_threadsafe(self._take, picture, is_last)

    def _take(self, picture: bytes, is_last: bool) -> None:
        self._waiting.append(picture)
        self._is_over |= is_last
        self._news.set()

    async def pictures(self) -> AsyncIterator[bytes]:
        """Yields the pictures until the run is over, and a comment where there is none for long."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_over:
                return
            if not await self._has_news():
                yield _COMMENT

    async def _has_news(self) -> bool:
        try:
            async with asyncio.timeout(_SILENCE):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class StatusFeed:
    """Asks a run for its status while anybody looks at it, and shows each answer to all viewers, encoded once.

    A picture has the events since the one before, and `after`, the number of the event before these, by which a viewer
    notices that it has missed pictures.
    """

    def __init__(self, answering: Answering, log: Log, every: float = EVERY) -> None:
        self._answering, self._log, self._every = answering, log, every
        self._viewers: set[Viewer] = set()
        self._worker = Worker("seep dashboard feed")
        self._is_asking = False
        self._latest: bytes | None = None  #: the last picture while there are viewers
        self._closed = threading.Event()
        self._left = threading.Event()  #: set when the last viewer has left
        self._lock = threading.Lock()  #: guards the viewers and the flag

    @property
    def viewers(self) -> int:
        """The number of viewers."""
        return len(self._viewers)

    def join(self) -> Viewer:
        """Returns a new viewer; on its event loop. Raises EnvironmentFault if there are too many."""
        viewer = Viewer()
        with self._lock:
            if self._closed.is_set() or len(self._viewers) >= VIEWERS:
                raise EnvironmentFault(f"the dashboard has {VIEWERS} viewers already, or is closed; close another page")
            self._viewers.add(viewer)
            self._left.clear()
            if self._latest is not None:
                viewer.show(self._latest)
            if not self._is_asking:
                self._is_asking = True
                self._worker.put(self._ask)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        with self._lock:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._latest = None
                self._left.set()

    def close(self) -> None:
        """Shows all viewers a last picture, and ends the thread."""
        self._closed.set()
        self._left.set()
        self._worker.close()

    # -- on the thread of the feed ------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Shows pictures until there is no viewer, or the run is over."""
        number: int | None = None
        while self._is_asking:
            is_last, begun = self._closed.is_set(), time.thread_time()
            picture, number, is_over = self._picture(number)
            self._show(picture, is_last or is_over)
            self._left.wait(max(self._every, _REST * (time.thread_time() - begun)))

    def _picture(self, number: int | None) -> tuple[bytes, int | None, bool]:
        """Returns a picture with the events after one, the number of its newest event, and whether the run is over."""
        asked = {"do": "status", "sample": True} | ({} if number is None else {"after": number})
        try:
            answer = self._answering.answer(asked)
        except SeepError as reason:  # such as a run in another process that has ended
            return _event("lost", {"error": str(reason)}), number, True
        except Exception:  # a bug: the page is told, and the run goes on
            self._log.exception("the dashboard cannot show the status")
            return _event("lost", {"error": "an error in seep; the run's log has it"}), number, True
        newest: int = answer["number"]
        picture = _event("status", {**answer, "after": newest if number is None else number})
        return picture, newest, answer["phase"] not in _ALIVE

    def _show(self, picture: bytes, is_last: bool) -> None:
        with self._lock:
            self._is_asking = bool(self._viewers) and not is_last
            self._latest = picture if self._is_asking else None
            for viewer in self._viewers:
                viewer.show(picture)
                if is_last:
                    viewer.show(_OVER, is_last=True)


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json_bytes(data))


_OVER = _event("over", {})
