"""The source log: which epoch read up to where, recorded before the epoch's data leaves its source."""

from __future__ import annotations

from collections.abc import Iterable

from primitives.graph import InstanceId
from seep.protocol.messages import Positions


class SourceLog:
    """What a source needs to read the same epochs again; kept from the last epoch that nobody can ask for."""

    def __init__(self) -> None:
        self._records: dict[InstanceId, dict[int, Positions]] = {}
        #: epoch -> the sources whose input ended with it or before
        self._exhausted: dict[int, set[InstanceId]] = {}

    def record(self, source: InstanceId, epoch: int, positions: Positions, exhausted: bool) -> None:
        self._records.setdefault(source, {})[epoch] = positions
        if exhausted:
            self._exhausted.setdefault(epoch, set()).add(source)

    def trim(self, source: InstanceId, epoch: int) -> None:
        """Forgets all before `epoch`; the record of `epoch` itself stays, as where the next one starts."""
        records = self._records.get(source, {})
        for old in [e for e in records if e < epoch]:
            del records[old]
            self._exhausted.pop(old, None)

    def after(self, source: InstanceId, epoch: int) -> tuple[Positions, dict[int, Positions]]:
        """The positions after an epoch, and the records of later epochs."""
        records = self._records.get(source, {})
        return records.get(epoch, {}), {e: positions for e, positions in records.items() if e > epoch}

    def ended(self, sources: Iterable[InstanceId], epoch: int) -> bool:
        """Whether all of these sources have recorded the epoch and had nothing left after it."""
        return self._exhausted.get(epoch, set()).issuperset(sources)
