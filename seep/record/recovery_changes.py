"""Recoveries as changes, as policies are to know of them: a replay is no load to scale for."""

from __future__ import annotations

from collections.abc import Iterator

from policies.observation import Change
from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.events import Rebound
from seep.record.events import InstanceRecovered
from seep.record.ring import Ring

#: Recoveries that are over and kept.
_REMEMBERED = 720


class RecoveryChanges:
    """Each recovery as a change, from the moment it was begun. For any thread."""

    def __init__(self) -> None:
        self._begun: dict[InstanceId, Rebound] = {}
        self._over = Ring[Change](_REMEMBERED)

    def hear(self, event: Event) -> None:
        if isinstance(event, Rebound):
            self._begun.setdefault(event.subject, event)
        elif isinstance(event, InstanceRecovered) and (first := self._begun.pop(event.subject, None)):
            self._over.append(Change(first.operator, first.at, 1, 1, event.at))

    def __iter__(self) -> Iterator[Change]:
        """The newest that are over, and all that are not."""
        yield from self._over
        for first in list(self._begun.values()):
            yield Change(first.operator, first.at, 1, 1)
