"""Meters: measurements of one instance, for progress, policies and reports."""

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
from seep.record.reports import HandedPart, InstanceFigures, LetterSample

T = TypeVar("T")


@runtime_checkable
class CountingLogic(Protocol):
    """A logic with counters, such as late rows and dead letters."""

    @property
    def counters(self) -> Mapping[str, int]: ...


@runtime_checkable
class SamplingLogic(Protocol):
    """A logic that has samples of its dead letters."""

    def letter_samples(self) -> tuple[LetterSample, ...]: ...


@runtime_checkable
class Sized(Protocol):
    """State that can measure its size."""

    def size(self) -> int: ...


@dataclass(slots=True)
class Meter:
    """The measurements of an instance; written by its thread, read by the reporting thread."""

    rows_in: int = 0
    rows_out: int = 0
    cpu: float = 0.0  #: CPU seconds of its thread
    busy: float = 0.0  #: seconds that its thread was working, on the CPU or waiting for something outside
    stolen: float = 0.0  #: seconds that its thread was ready, but had no core
    state_bytes: int = 0
    watermark: int | None = None  #: watermark of the last epoch that was put out
    age: float = 0.0  #: seconds from the creation of that epoch's oldest row until then
    edges: dict[Edge, int] = field(default_factory=dict)  #: rows put out on each edge
    logic: Any = None
    slots: SlotMeter | None = None  #: counts rows by slot, where that is possible
    #: seconds from the creation of an epoch's oldest row to the epoch's commit, of epochs not reported yet
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    #: handovers that were not reported yet
    handed: deque[HandedPart] = field(default_factory=lambda: deque(maxlen=10_000))

    def watch(self, logic: Any) -> None:
        """Sets the logic of the instance."""
        self.slots = logic if isinstance(logic, SlotMeter) else None
        self.logic = logic.logic if isinstance(logic, SlotMeter) else logic

    def size(self, emission: Emission[pa.RecordBatch]) -> int:
        """Returns the bytes of an epoch's output, which its outbox asks for once; also counts its rows."""
        rows = {edge: batch.num_rows for edge, batch in emission.outputs.items()}
        self.rows_out += max(rows.values(), default=0)
        for edge, count in rows.items():
            self.edges[edge] = self.edges.get(edge, 0) + count
        self.put_out(emission.watermark, emission.created)
        return emission.nbytes

    def put_out(self, watermark: int, created: float) -> None:
        """Records the end of an epoch; `created` is the unix time of its oldest row, 0 if unknown."""
        self.watermark = watermark
        self.age = max(0.0, time.time() - created) if created else 0.0

    def figures(self, identity: Incarnation, phase: str, epoch: int) -> InstanceFigures:
        """Returns the figures to report; each latency, count by slot, handover and dead letter is reported once."""
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
            letters=self.logic.letter_samples() if isinstance(self.logic, SamplingLogic) else (),
        )

    def _counters(self) -> dict[str, int]:
        if not isinstance(self.logic, CountingLogic):
            return {}
        return {name: int(count) for name, count in dict(self.logic.counters).items()}


def _taken(queue: deque[T]) -> Iterator[T]:
    """Takes all items that are in the queue now."""
    return (queue.popleft() for _ in range(len(queue)))
