"""Meters: what one instance has done, for progress, policies and reports."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from primitives.emission import Emission
from primitives.graph import Edge
from seep.node.slot_meter import SlotMeter
from seep.protocol.view import Incarnation
from seep.record.reports import HandedPart, InstanceFigures

T = TypeVar("T")


@runtime_checkable
class CountingLogic(Protocol):
    """A logic that counts things worth telling: late rows, dead letters."""

    @property
    def counters(self) -> Mapping[str, int]: ...


@runtime_checkable
class Sized(Protocol):
    """State that can tell how large it is."""

    def size(self) -> int: ...


@dataclass(slots=True)
class Meter:
    """Written by the instance's thread, read by the one that reports."""

    rows_in: int = 0
    rows_out: int = 0
    cpu: float = 0.0  #: seconds of its thread
    busy: float = 0.0  #: seconds that its thread was at work, on the CPU or waiting for something outside
    stolen: float = 0.0  #: seconds that its thread was ready and had no core
    state_bytes: int = 0
    watermark: int | None = None  #: of the last epoch that was put out
    age: float = 0.0  #: seconds from the creation of that epoch's oldest row until then
    edges: dict[Edge, int] = field(default_factory=dict)  #: rows put out on each
    logic: Any = None
    slots: SlotMeter | None = None  #: what counts rows by slot, where that is possible
    #: seconds from the creation of an epoch's oldest row to the epoch's commit, of epochs not reported yet
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    #: what was not reported yet
    handed: deque[HandedPart] = field(default_factory=lambda: deque(maxlen=10_000))

    def watch(self, logic: Any) -> None:
        """This is what the instance works with."""
        self.slots = logic if isinstance(logic, SlotMeter) else None
        self.logic = logic.logic if isinstance(logic, SlotMeter) else logic

    def size(self, emission: Emission[pa.RecordBatch]) -> int:
        """The bytes of an epoch's output, as its outbox asks for them once; counts its rows on the way."""
        rows = {edge: batch.num_rows for edge, batch in emission.outputs.items()}
        self.rows_out += max(rows.values(), default=0)
        for edge, count in rows.items():
            self.edges[edge] = self.edges.get(edge, 0) + count
        self.put_out(emission.watermark, emission.created)
        return emission.nbytes

    def put_out(self, watermark: int, created: float) -> None:
        """An epoch is done, of which the oldest row was created at a unix time; 0 if that is not known."""
        self.watermark = watermark
        self.age = max(0.0, time.time() - created) if created else 0.0

    def figures(self, identity: Incarnation, phase: str, epoch: int) -> InstanceFigures:
        """What is reported; latencies, rows by slot and what was handed over are told once."""
        return InstanceFigures(
            identity=identity,
            phase=phase,
            epoch=epoch,
            counted=epoch + 1,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            cpu=self.cpu,
            busy=self.busy,
            stolen=self.stolen,
            state_bytes=self.state_bytes,
            watermark=self.watermark,
            age=self.age,
            edges={str(edge): rows for edge, rows in list(self.edges.items())},
            counters=self._counters(),
            latencies=tuple(_taken(self.latencies)),
            handed=tuple(_taken(self.handed)),
            slots=self.slots.take() if self.slots is not None else None,
        )

    def _counters(self) -> dict[str, int]:
        if not isinstance(self.logic, CountingLogic):
            return {}
        return {name: int(count) for name, count in dict(self.logic.counters).items()}


def _taken(queue: deque[T]) -> Iterator[T]:
    """All that are in it now."""
    return (queue.popleft() for _ in range(len(queue)))
