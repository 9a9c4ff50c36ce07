"""Programs on a terminal of their own, and what they have drawn on it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.command import hear_ctrl_c
from tests.waiting import eventually


class Screen:
    """What a program has drawn on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process, self._terminal = process, terminal
        self._drawn = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._drawn += os.read(self._terminal, 65536)
            except OSError:  # the program has ended
                return

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._drawn.decode(errors="replace"))

    def shows(self, words: str) -> None:
        assert eventually(lambda: words in self.text), f"{words!r} was not shown:\n{self.text}"

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def end(self) -> int:
        """Its exit code, after all that it has drawn was read."""
        code = self.process.wait(120.0)
        self._reader.join(20.0)
        return code


@contextmanager
def on_terminal(*command: str) -> Iterator[Screen]:
    """A program whose terminal is a new one, 140 columns wide."""
    ours, its = pty.openpty()
    environment = os.environ | {"COLUMNS": "140", "LINES": "60", "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True, preexec_fn=hear_ctrl_c
    )
    os.close(its)
    screen = Screen(process, ours)
    try:
        yield screen
    finally:
        process.kill()
        process.wait()
        screen._reader.join(20.0)
        os.close(ours)
