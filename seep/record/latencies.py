"""Latencies of committed epochs: the newest of them one by one, and all of them in a histogram."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]

#: Latencies that are kept one by one.
_KEPT = 200_000


def percentiles(latencies: Any) -> dict[str, float]:
    """p50, p95, p99 and the highest of some latencies."""
    if not len(latencies):
        return {}
    found = np.percentile(np.asarray(latencies), [50, 95, 99, 100])
    return dict(zip(("p50", "p95", "p99", "max"), map(float, found), strict=True))


class LatencyRing:
    """The newest latencies, with the times at which they were reported. They are added in order of time. Thread-safe.

    >>> ring = LatencyRing(most=3)
    >>> for at in (1.0, 2.0, 3.0, 4.0):
    ...     ring.add(at, [at / 10])
    >>> ring.since(2.5).tolist(), ring.newest(9).tolist(), ring.percentiles_since(3.0)["max"]
    ([0.3, 0.4], [0.2, 0.3, 0.4], 0.4)
    """

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._heard: Seconds = np.zeros(most)
        self._values: Seconds = np.zeros(most)
        self._total = 0
        self._lock = threading.Lock()

    def add(self, at: float, latencies: Sequence[float]) -> None:
        """Adds latencies that were reported at a time."""
        with self._lock:
            newest = np.asarray(latencies[-self._most :], np.float64)
            places = (self._total + np.arange(len(newest))) % self._most
            self._heard[places], self._values[places] = at, newest
            self._total += len(newest)

    def shift(self, seconds: float) -> None:
        """Moves the zero of all times `seconds` later."""
        with self._lock:
            self._heard -= seconds

    def since(self, at: float) -> Seconds:
        """The latencies that were reported after a time, oldest first."""
        with self._lock:
            parts = [values[np.searchsorted(heard, at, "right") :] for heard, values in self._segments()]
            return np.concatenate(parts)

    def newest(self, count: int) -> Seconds:
        """The newest `count` latencies."""
        with self._lock:
            return np.concatenate([values[-count:] for _, values in self._segments()])[-count:]

    def percentiles_since(self, at: float) -> Mapping[str, float]:
        """p50, p95, p99 and max of the latencies reported after a time; empty if there is none."""
        return percentiles(self.since(at))

    def timeline(self, every: float = 0.25) -> list[dict[str, float]]:
        """Returns percentiles for each interval of `every` seconds with a latency; of a long run, for its last part."""
        with self._lock:
            heard = np.concatenate([heard for heard, _ in self._segments()])
            values = np.concatenate([values for _, values in self._segments()])
        numbers, firsts = np.unique((heard // every).astype(np.int64), return_index=True)
        stretches = np.split(values, firsts[1:]) if len(values) else []
        return [
            {"at": int(number) * every, "epochs": len(stretch), **percentiles(stretch)}
            for number, stretch in zip(numbers, stretches, strict=True)
        ]

    def _segments(self) -> Iterator[tuple[Seconds, Seconds]]:
        """The times and latencies in the two parts of the ring, the older part first."""
        end = self._total % self._most
        if self._total > self._most:
            yield self._heard[end:], self._values[end:]
        elif self._total == self._most:
            end = self._most
        yield self._heard[:end], self._values[:end]
