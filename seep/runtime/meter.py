"""Meters: what one instance has done, for progress, policies and reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from primitives.emission import Emission
from seep.runtime.slot_meter import SlotMeter


@runtime_checkable
class Counting(Protocol):
    """A logic that counts things worth telling: late rows, dead letters."""

    @property
    def counters(self) -> Mapping[str, int]: ...


@runtime_checkable
class Sized(Protocol):
    """State that can tell how large it is."""

    def size(self) -> int: ...


class Handed(NamedTuple):
    """What came to an instance by handover at an epoch, or a part of it."""

    epoch: int
    nbytes: int = 0  #: handed over between two epochs
    nbytes_ahead: int = 0  #: of backups, fetched ahead
    held_back: int = 0  #: rows that waited for it


@dataclass(slots=True)
class Meter:
    """Written by the instance's thread, read by the one that reports."""

    rows_in: int = 0
    rows_out: int = 0
    cpu: float = 0.0  #: seconds of its thread
    busy: float = 0.0  #: seconds that its thread was at work, on the CPU or waiting for something outside
    stolen: float = 0.0  #: seconds that its thread was ready and had no core
    state_bytes: int = 0
    logic: Any = None
    slots: SlotMeter | None = None  #: what counts rows by slot, where that is possible
    #: seconds from the creation of an epoch's oldest row to the epoch's commit, of epochs not reported yet
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    #: what was not reported yet
    handed: deque[Handed] = field(default_factory=lambda: deque(maxlen=10_000))

    def watch(self, logic: Any) -> None:
        """This is what the instance works with."""
        self.slots = logic if isinstance(logic, SlotMeter) else None
        self.logic = logic.logic if isinstance(logic, SlotMeter) else logic

    def size(self, emission: Emission[pa.RecordBatch]) -> int:
        """The bytes of an epoch's output, as its outbox asks for them once; counts its rows on the way."""
        self.rows_out += max((batch.num_rows for batch in emission.outputs.values()), default=0)
        return emission.nbytes

    def to_json(self) -> dict[str, Any]:
        """What is reported; latencies and what was handed over are told once."""
        latencies = [self.latencies.popleft() for _ in range(len(self.latencies))]
        handed = [list(self.handed.popleft()) for _ in range(len(self.handed))]
        slots = self.slots.take() if self.slots is not None else None
        counters = dict(self.logic.counters) if isinstance(self.logic, Counting) else {}
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "cpu": self.cpu,
            "busy": self.busy,
            "stolen": self.stolen,
            "state_bytes": self.state_bytes,
            "latencies": latencies,
            "handed": handed,
            "counters": counters,
        } | ({"slots": slots} if slots else {})
