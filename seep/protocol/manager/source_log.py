"""The source log: the positions after each epoch, recorded before the epoch's rows leave their source."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from primitives.graph import InstanceId
from seep.protocol.messages import Positions


class _Record(NamedTuple):
    positions: Positions
    exhausted: bool  #: whether no input was left after it


class SourceLog:
    """The positions that a source needs to read the same epochs again, from the last epoch that may be requested."""

    def __init__(self) -> None:
        self._records: dict[InstanceId, dict[int, _Record]] = {}

    def record(self, source: InstanceId, epoch: int, positions: Positions, exhausted: bool) -> None:
        self._records.setdefault(source, {})[epoch] = _Record(positions, exhausted)

    def trim(self, source: InstanceId, epoch: int) -> None:
        """Forgets all records before `epoch`; that of `epoch` itself stays, because the next epoch starts there."""
        records = self._records.get(source, {})
        for old in [e for e in records if e < epoch]:
            del records[old]

    def forget(self, source: InstanceId) -> None:
        """Forgets an instance that has ended."""
        self._records.pop(source, None)

    @property
    def known(self) -> Set[InstanceId]:
        """The instances with records."""
        return self._records.keys()

    def after(self, source: InstanceId, epoch: int) -> tuple[Positions, dict[int, Positions]]:
        """Returns the positions after an epoch, and the records of later epochs."""
        records = self._records.get(source, {})
        positions = records[epoch].positions if epoch in records else {}
        return positions, {e: record.positions for e, record in records.items() if e > epoch}

    def ended(self, sources: Iterable[InstanceId], epoch: int) -> bool:
        """Returns whether all of these sources have recorded the epoch and had no more input after it."""
        found = (self._records.get(source, {}).get(epoch) for source in sources)
        return all(record is not None and record.exhausted for record in found)
