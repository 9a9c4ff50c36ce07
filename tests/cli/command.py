"""Programs in processes of their own, as somebody at a terminal has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE = 240


def hear_ctrl_c() -> None:
    """As in the foreground of a terminal; what is started in the background, as tests may be, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Command:
    """A running program, whose processes all carry a mark in their environment."""

    def __init__(self, *command: str) -> None:
        self._mark = f"SEEP_TEST_MARK={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {name: value},
            start_new_session=True,
            preexec_fn=hear_ctrl_c,
        )

    def press_ctrl_c(self) -> None:
        """As a terminal does it: all processes in the foreground hear of it, those of Spark too."""
        os.killpg(self.process.pid, signal.SIGINT)

    def lines_until(self, word: str) -> list[str]:
        """What it says up to a line with a word."""
        lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line)
            if word in line:
                return lines
        raise AssertionError(f"{word!r} was never said:\n{''.join(lines)}")

    def end(self) -> tuple[int, str]:
        """Its exit code and the rest of what it says."""
        output, _ = self.process.communicate(timeout=_PATIENCE)
        return self.process.returncode, output

    def processes(self) -> list[int]:
        """Its processes that are alive, itself and those of Spark."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and self._marked(entry)]

    def _marked(self, entry: Path) -> bool:
        try:
            return self._mark.encode() in (entry / "environ").read_bytes()
        except OSError:  # it has ended, or is not ours
            return False


@contextmanager
def seep(*arguments: str) -> Iterator[Command]:
    """A running `seep`."""
    with started(sys.executable, "-c", "from seep.cli import main; main()", *arguments) as command:
        yield command


@contextmanager
def started(*arguments: str) -> Iterator[Command]:
    """A running program; no process of it is left after the block."""
    command = Command(*arguments)
    try:
        yield command
    finally:
        for number in command.processes():
            os.kill(number, signal.SIGKILL)
        command.process.wait()
        if command.process.stdout is not None:
            command.process.stdout.close()
