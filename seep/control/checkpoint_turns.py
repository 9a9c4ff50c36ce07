"""Turns of checkpoints: all instances take them equally often and one after the other, so that none delays others."""

from __future__ import annotations

from collections.abc import Collection

from primitives.graph import InstanceId

#: The most seconds between two calls.
_EVERY = 0.05


class CheckpointTurns:
    """Spreads the checkpoints of all instances over the time between two of the same.

    >>> turns, both = CheckpointTurns(10.0), [InstanceId("sum", 0), InstanceId("sum", 1)]
    >>> [[i.index for i in turns.due(now, both)] for now in (0.0, 5.0, 10.0, 12.0, 15.0)]
    [[], [0], [1], [], [0]]
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._next: dict[InstanceId, float] = {}
        self._look = 0.0

    def due(self, now: float, instances: Collection[InstanceId]) -> list[InstanceId]:
        """Returns the present instances whose turn it is; none between two calls that are less than some time apart."""
        if now < self._look:
            return []
        self._look = now + min(_EVERY, self._interval / 10)
        self._next = {instance: at for instance, at in self._next.items() if instance in instances}
        for turn, instance in enumerate(sorted(instances), start=1):
            self._next.setdefault(instance, now + self._interval * turn / len(instances))
        ripe = [instance for instance, at in self._next.items() if at <= now]
        self._next |= dict.fromkeys(ripe, now + self._interval)
        return ripe
