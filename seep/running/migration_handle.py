"""The handle of a migration: to wait for it, see its progress, and cancel it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from primitives.errors import InternalError, UserError
from seep.control.migration import MigrationProgress, MigrationState
from seep.driver.driver import ManagerProcess
from seep.driver.steering import Awaited, Steering
from seep.reports.notebook import migration_html

#: Seconds between two checks whether the run is over.
_LOOK = 0.05
#: The state of several migrations is the first of these that any of them is in.
_ORDER = (
    MigrationState.REFUSED,
    MigrationState.MOVING,
    MigrationState.WAITING,
    MigrationState.SETTLING,
    MigrationState.CANCELLED,
    MigrationState.DONE,
)


class MigrationHandle:
    """A migration of one operator, or of several that were requested together."""

    def __init__(self, process: ManagerProcess, steering: Steering, those: Sequence[Awaited]) -> None:
        self._process, self._steering, self._those = process, steering, tuple(those)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is over, with all backups taken; returns False if that takes longer than `timeout`.

        Raises UserError if it was refused. A cancelled migration is over when the announced moves are complete; see
        `progress.state`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for migration in self._those:
            while not migration.over.wait(_LOOK):
                if self._process.ended.is_set():
                    self._steering.end()
                elif deadline is not None and time.monotonic() > deadline:
                    return False
        for progress in self.parts:
            if progress.state is MigrationState.REFUSED:
                raise UserError(f"the migration of {progress.operator} is refused: {progress.why}")
        return True

    def _repr_html_(self) -> str:
        """Shows its progress in a notebook, at this moment."""
        return migration_html(self.parts)

    def cancel(self) -> None:
        """Announces no further step; slots that have moved stay where they are."""
        for migration in self._those:
            self._steering.cancel(migration.number)

    @property
    def is_over(self) -> bool:
        return all(migration.over.is_set() for migration in self._those)

    @property
    def progress(self) -> MigrationProgress:
        """The progress; for several operators, in total."""
        return _total(self.parts)

    @property
    def parts(self) -> tuple[MigrationProgress, ...]:
        """The progress of each operator."""
        return tuple(self._progress(each) for each in self._those)

    def _progress(self, migration: Awaited) -> MigrationProgress:
        found = migration.last or next(iter(self._steering.progress(migration.number)), None) or migration.last
        if found is None:
            raise InternalError(f"migration {migration.number} is neither open nor over")
        return found


def _total(parts: Sequence[MigrationProgress]) -> MigrationProgress:
    if len(parts) == 1:
        return parts[0]
    return MigrationProgress(
        operator=", ".join(part.operator for part in parts),
        strategy=parts[0].strategy,
        state=min((part.state for part in parts), key=_ORDER.index),
        steps=sum(part.steps for part in parts),
        steps_done=sum(part.steps_done for part in parts),
        slots_moved=sum(part.slots_moved for part in parts),
        slots_remaining=sum(part.slots_remaining for part in parts),
        bytes=sum(part.bytes for part in parts),
        bytes_ahead=sum(part.bytes_ahead for part in parts),
        held_back=sum(part.held_back for part in parts),
        seconds=max(part.seconds for part in parts),
        why=", ".join(dict.fromkeys(part.why for part in parts)),
        id=parts[0].id,
    )
