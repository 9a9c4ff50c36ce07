"""Nodes that do nothing but be there: each says so in a file, and ends when told to in another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seep.channels.process import ProcessId
from seep.spark.order import NodeOrder
from tests.waiting import eventually


@dataclass(frozen=True, slots=True)
class Beacon:
    """What a node said of itself."""

    process: ProcessId
    host: str
    package: str  #: where it found seep


def await_beacon(directory: Path, order: str, attempt: int = 0) -> Beacon:
    """Waits until the node is there."""
    path = directory / f"{order}.{attempt}"
    assert eventually(path.exists), f"node {path.name} did not come"
    place, pid, started, host, package = json.loads(path.read_text())
    return Beacon(ProcessId(place, pid, started), host, package)


def tell(directory: Path, order: str, word: str) -> None:
    """Tells a node to `return` or to `raise`."""
    (directory / f"{order}.{word}").touch()


def beacon() -> Callable[[NodeOrder], None]:
    """The main function of such nodes. Made here, it travels by value: these tests need not be where it runs."""

    def main(order: NodeOrder) -> None:
        import json
        from dataclasses import astuple
        from pathlib import Path

        import seep
        from seep.spark.address import node_host

        directory = Path(order.settings)
        path = directory / f"{order.id}.{order.attempt}"
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_text(json.dumps([*astuple(order.process), node_host("127.0.0.1"), seep.__file__]))
        unfinished.rename(path)
        while not (directory / f"{order.id}.return").exists():
            if (directory / f"{order.id}.raise").exists():
                raise ValueError("told to\nraise")
            time.sleep(0.005)

    return main
