"""Requests: what people ask for, as migrations; what makes no sense is refused before anything moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from policies.migration.settings import MigrationSettings, Strategy
from policies.move_stream import move_stream
from primitives.durations import seconds
from primitives.errors import UserError
from primitives.settings import checked
from seep.query.program import Program
from seep.runtime.courses import ByTheClock, StepByStep
from seep.runtime.driver import ManagerProcess
from seep.runtime.goals import Target, goal_of, handed_over
from seep.runtime.migration import Migration
from seep.runtime.migration_handle import MigrationHandle
from seep.runtime.migrations import Migrations

_INSTANCE = re.compile(r"(?P<operator>[^\[\]]+)(\[(?P<index>\d+)\])?")


class MigrationRequests:
    """Between whoever asks and the migrations of a run. For any thread."""

    def __init__(
        self, process: ManagerProcess, migrations: Migrations, program: Program, settings: MigrationSettings
    ) -> None:
        self._process, self._migrations, self._program, self._settings = process, migrations, program, settings

    def migrate(
        self,
        targets: Mapping[str, Target],
        chosen: Mapping[str, object],
        at: float | str | None = None,
        epoch: int | None = None,
    ) -> MigrationHandle:
        """Several operators begin together. `chosen` are the settings that go before those of the run, None apart."""
        if not targets:
            raise UserError("there is nothing to migrate; give an operator and its target")
        settings = self._with(chosen)
        course = StepByStep(settings, None if at is None else seconds(at), epoch)
        return self._open([self._towards(operator, target, course) for operator, target in targets.items()])

    def follow(self, operator: str, rows: Any) -> MigrationHandle:
        """Moves that are told by rows, each at its moment."""
        stream = move_stream(_rows(rows), self._slot_bits(operator), f"the moves of {operator}")
        why = f"{len(stream)} moments"
        migration = Migration(operator, ByTheClock(stream), self._process.events.now, steps=stream.steps, why=why)
        return self._open([migration])

    def hand_over(self, instance: str) -> MigrationHandle:
        """All slots of an instance, or of an operator's first, go to a new instance at once."""
        read = _INSTANCE.fullmatch(instance)
        if read is None:
            raise UserError(f"{instance!r} is neither an operator nor an instance; write it as counter or counter[0]")
        operator, index = read["operator"], read["index"]
        goal = handed_over(operator, None if index is None else int(index))
        return self.migrate({operator: goal}, {"strategy": Strategy.ALL_AT_ONCE})

    def _towards(self, operator: str, target: Target, course: StepByStep) -> Migration:
        goal = goal_of(operator, target, self._slot_bits(operator))
        self._process.ask(goal)  # UserError now, rather than when it begins
        return Migration(operator, course, self._process.events.now, goal=goal, settings=course.settings)

    def _with(self, chosen: Mapping[str, object]) -> MigrationSettings:
        given = {name: value for name, value in chosen.items() if value is not None}
        return checked(MigrationSettings, self._settings.model_dump() | given, "migrate")

    def _open(self, migrations: Sequence[Migration]) -> MigrationHandle:
        if self._process.ended.is_set():
            raise UserError("the run is over; nothing can be migrated any more")
        self._migrations.open(*migrations)
        return MigrationHandle(self._process, self._migrations, migrations)

    def _slot_bits(self, operator: str) -> int:
        operators = self._program.graph.operators
        if operator not in operators:
            raise UserError(f"there is no operator {operator!r}; there are {', '.join(operators)}")
        return operators[operator].slot_bits


def _rows(rows: Any) -> Sequence[Mapping[str, Any]] | pa.Table | Path:
    """Rows as policies read them; those of Spark are collected, since they are few."""
    if isinstance(rows, str):
        return Path(rows)
    if hasattr(rows, "toArrow"):
        table: pa.Table = rows.toArrow()
        return table
    found: Sequence[Mapping[str, Any]] | pa.Table | Path = rows
    return found
