"""Pushing without Spark: what tasks do with their rows, and what two nodes do to keep them; for `spark_io.py`.

All of it is in this process, over real sockets: the rate by core is of sender and receivers together.
"""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seep.channels.peers import Peers
from seep.channels.port import Port
from seep.channels.security import Security
from seep.protocol.view import MANAGER
from seep.spark.inlet.intake import Intake
from seep.spark.inlet.pieces import Directory
from seep.spark.inlet.push import Push, PushSettings
from seep.storage.settings import StorageSettings

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int32(), "d": pa.int64(), "e": pa.int64()})
#: Rows of a partition, in batches of as many as Spark makes them of; and how many of them are pushed.
ROWS, BATCH, PARTITIONS = 500_000, 10_000, 12
NODES = ("n1", "n2")


class Speed(NamedTuple):
    """Rows per second, and per second of CPU."""

    by_clock: float
    by_core: float


class _Driver:
    """Says where rows go; hears nothing."""

    def __init__(self) -> None:
        self.places: list[list[Any]] = []

    def on_call(self, _peer: str, _method: str, body: Mapping[str, Any]) -> Any:
        return {"stream": "s", "id": 0, "places": self.places} if "places" in body else Directory().news()

    def __getattr__(self, name: str) -> Any:
        return lambda *_given: None


def pushed() -> Speed:
    """The rate at which partitions are pushed and kept, one after the other."""
    with tempfile.TemporaryDirectory() as directory:
        security, driver = Security.open(), _Driver()
        port = Port("127.0.0.1", security, driver)
        intakes = [Intake("query", StorageSettings(), security, Path(directory, name)) for name in NODES]
        ports = [Port("127.0.0.1", security, _Driver(), shop=intake) for intake in intakes]
        peers = [Peers(name, security, _Driver()) for name in NODES]
        for mine, intake in zip(peers, intakes, strict=True):
            mine.know(MANAGER, port.address)
            intake.open(mine, threading.Event())
        driver.places = [[name, *each.address] for name, each in zip(NODES, ports, strict=True)]
        try:
            return _timed(PushSettings("rows", SCHEMA, None, port.address, security))
        finally:
            for each in (*peers, *ports, port):
                each.close()


def _timed(settings: PushSettings) -> Speed:
    numbers = np.arange(BATCH)
    batch = pa.record_batch([pa.array(numbers, field.type) for field in SCHEMA], schema=SCHEMA)
    _push(settings, batch, 0)
    clock, cpu = time.monotonic(), _cpu()
    for partition in range(1, PARTITIONS + 1):
        _push(settings, batch, partition)
    rows = PARTITIONS * ROWS
    return Speed(rows / (time.monotonic() - clock), rows / (_cpu() - cpu))


def _push(settings: PushSettings, batch: pa.RecordBatch, partition: int) -> None:
    push = Push(settings, partition)
    for _ in range(ROWS // BATCH):
        push.send(batch)
    [receipt] = push.receipt().to_pylist()
    assert receipt["holders"] == list(NODES), receipt


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
