"""A manager's process without any nodes but those that a test has register."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seep.channels.process import ProcessId
from seep.channels.security import Security
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.driver.options import RunOptions
from tests.runtime.counting import counting


@contextmanager
def managing(*listeners: RunListener) -> Iterator[ManagerProcess]:
    process = ManagerProcess(counting().compile(), RunOptions(), "127.0.0.1", "127.0.0.1", Security.open(), "test")
    for listener in listeners:
        process.subscribe(listener)
    process.serve("greet", lambda body: {"greeting": f"hello {body['name']}"})
    process.start()
    try:
        yield process
    finally:
        process.close()
        process.close_port()


def register(process: ManagerProcess, number: int = 0) -> str:
    """A node's first call; nobody listens at its address."""
    here = ProcessId.this()
    body = {
        "order": f"order {number}",
        "process": [here.place, here.pid, here.started],
        "address": ["127.0.0.1", 1],
        "directory": f"/tmp/no such directory {number}",
    }
    return str(process.on_call("?", "register", body)["name"])
