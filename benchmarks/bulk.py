"""The bulk lane: letters beside a large checkpoint, and what a restore has to wait for while one is under way.

Three processes: one sends, two answer. Each figure with state under way has one without it beside it, of the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

# As a script, this folder is first on the path, and hides the package that is named like one of its files.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np

from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target
from seep.channels.security import Security
from seep.protocol.messages import Committed, Tick
from tests.runtime.bulk_kit import MIB, OWNER, SWITCH_INTERVAL, Talker, answering_process, backup, restore

TARGETS = {
    "letter_beside_p50_ms": Target("letter there and back beside a checkpoint, p50", "ms", 1.0, 5.0),
    "letter_beside_p99_ms": Target("the same, p99", "ms", 1.0, 50.0),
    "restore_same_peer_ratio": Target("restore beside a checkpoint to the same node, times that alone", "×", 1.0, 1.5),
    "restore_other_peer_ratio": Target("the same beside one to another node", "×", 1.0, 1.5),
}


class Sender:
    """The process that sends."""

    def __init__(self, here: Talker) -> None:
        self._here = here

    def letters(self, goes_on: Iterable[object]) -> np.ndarray:
        """Milliseconds of letters to `there` and back, one after the other."""
        taken = []
        for number, _ in enumerate(goes_on):
            began = time.monotonic()
            tick = Tick(OWNER, number, False)
            self._here.peers.post("there", 1, tick)
            self._wait(lambda tick=tick: any(heard.body == tick for heard in self._here.heard))
            taken.append(1_000 * (time.monotonic() - began))
            self._here.heard.clear()
            time.sleep(0.002)
        return np.array(taken)

    def restore(self, size: int) -> float:
        """Seconds until `there` has answered that a restore has arrived."""
        message = restore(size)
        self._here.heard.clear()
        began = time.monotonic()
        self._here.peers.post("there", 1, message)
        answer = Committed(OWNER, message.checkpoint.nbytes if message.checkpoint is not None else 0)
        self._wait(lambda: any(heard.body == answer for heard in self._here.heard))
        return time.monotonic() - began

    def send(self, peer: str, size: int) -> None:
        self._here.peers.post(peer, 1, backup(size))

    def under_way(self) -> bool:
        return bool(self._here.peers.transfers())

    def settle(self) -> None:
        while self.under_way():
            time.sleep(0.01)

    def _wait(self, holds: Callable[[], bool]) -> None:
        with self._here.change:
            if not self._here.change.wait_for(holds, 120.0):
                raise TimeoutError("a process has not answered within 120 s")


def measure(size: int, restored: int, rounds: int) -> dict[str, float]:
    """With checkpoints of `size` bytes, and `rounds` restores of `restored` bytes in each case."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    security = Security.open()
    with ExitStack() as stack:
        here = Talker("here", security)
        stack.callback(here.close)
        for name in ("there", "elsewhere"):
            stack.enter_context(answering_process(security, here, name))
        sender = Sender(here)
        sender.letters(range(50))
        return _letters(sender, size) | _restores(sender, size, restored, rounds)


def _letters(sender: Sender, size: int) -> dict[str, float]:
    progress("letters")
    alone = sender.letters(range(500))
    began = time.monotonic()
    sender.send("there", size)
    beside = sender.letters(iter(sender.under_way, False))
    seconds = time.monotonic() - began
    found = {"checkpoint_mb_per_s": size / 1e6 / seconds}
    for name, taken in (("alone", alone), ("beside", beside)):
        found |= {f"letter_{name}_p{p}_ms": float(np.percentile(taken, p)) for p in (50, 99)}
    return found


def _restores(sender: Sender, size: int, restored: int, rounds: int) -> dict[str, float]:
    progress("restores")
    alone, same, other = [], [], []
    for _ in range(rounds):
        alone.append(sender.restore(restored))
        for peer, taken in (("there", same), ("elsewhere", other)):
            sender.send(peer, size)
            time.sleep(0.05)
            taken.append(sender.restore(restored))
            assert sender.under_way(), "the checkpoint was too small to be beside the restore"
            sender.settle()
    return {
        "restore_alone_s": median(alone),
        "restore_same_peer_ratio": median(same) / median(alone),
        "restore_other_peer_ratio": median(other) / median(alone),
    }


def main() -> None:
    parser = parser_of(__doc__, "benchmarks/bulk.py --size 2048")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of a checkpoint (1024)")
    parser.add_argument("--restored", type=int, default=64, metavar="MIB", help="of a restore (64)")
    parser.add_argument("--rounds", type=int, default=5, help="of restores (5)")
    given = parser.parse_args()
    tell(measure(given.size * MIB, given.restored * MIB, given.rounds), TARGETS, given.json)


if __name__ == "__main__":
    main()
