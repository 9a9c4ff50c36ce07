"""Interrupts: Ctrl-C once lets a run come to its end, twice stops it; and nothing cuts the stopping short."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context around the whole life of a run; restores at its end what was there before.

    Up to `listen` an interrupt ends the start as ever, by KeyboardInterrupt.
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
        """The run goes on. (Spark has set a handler of its own meanwhile, which would end all nodes.)"""
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGTERM, self._stop)

    def ignore(self) -> None:
        """The run is being stopped, and that takes the time it takes."""
        for number in _HANDLED:
            signal.signal(number, signal.SIG_IGN)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked_to_finish:
            self._stop(number, frame)
        self.asked_to_finish = True

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.ignore()
        raise KeyboardInterrupt
