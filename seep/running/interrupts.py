"""Interrupts: the first Ctrl-C ends a run's input, the second stops the run; stopping is not interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

#: The message after the first Ctrl-C.
ENDING = "ending the input and finishing what was read; Ctrl-C again stops at once"

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context around the whole life of a run; restores the earlier signal handlers at its end.

    Before `listen`, an interrupt raises KeyboardInterrupt as usual, and so ends the start.
    """

    def __init__(self) -> None:
        self.asked_to_finish = False  #: by the first Ctrl-C

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _HANDLED}
        signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Handles interrupts from now on. (Spark has set its own handler meanwhile, which would end all nodes.)"""
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGTERM, self._stop)

    def ignore(self) -> None:
        """Ignores interrupts while the run is being stopped."""
        for number in _HANDLED:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def counted(self, stop: Callable[[], None]) -> Iterator[None]:
        """Counts Ctrl-C while a program waits for a run; the second one stops it.

        It has an effect only in the main thread, which alone receives signals, and outside of an `Interrupts` context.
        """
        before = _handler_to_replace()
        if before is None:
            yield
            return
        signal.signal(signal.SIGINT, self._count)
        try:
            yield
        except KeyboardInterrupt:
            stop()
            raise
        finally:
            signal.signal(signal.SIGINT, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked_to_finish:
            self._stop(number, frame)
        self.asked_to_finish = True

    def _count(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.asked_to_finish:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        self.asked_to_finish = True

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.ignore()
        raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C: stopping a run takes bounded time, and would leave processes behind if interrupted."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


#: The handlers that `signal.signal` accepts.
_Handler = Callable[[int, FrameType | None], object] | int


def _handler_to_replace() -> _Handler | None:
    """Returns the handler of Ctrl-C if it may be replaced for a while; None if not, or not on this thread."""
    before = signal.getsignal(signal.SIGINT)
    is_taken = before == signal.SIG_IGN or isinstance(getattr(before, "__self__", None), Interrupts)
    is_main = threading.current_thread() is threading.main_thread()
    return before if is_main and not is_taken else None
