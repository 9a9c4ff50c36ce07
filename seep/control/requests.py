"""Requests: converts users' requests to migrations; impossible ones are refused before anything moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from formats.durations import seconds
from formats.settings import checked
from policies.migration.move_stream import move_stream
from policies.migration.settings import MigrationSettings, Strategy
from primitives.errors import UserError
from primitives.graph import QueryGraph
from seep.control.migration import Migration
from seep.control.pacing import ByTheClock, StepByStep
from seep.control.targets import Target, goal_of, handed_over

_INSTANCE = re.compile(r"(?P<operator>[^\[\]]+)(\[(?P<index>\d+)\])?")


class MigrationRequests:
    """Makes migrations of users' requests, by the settings of a run."""

    def __init__(self, graph: QueryGraph, settings: MigrationSettings) -> None:
        self._graph, self._settings = graph, settings

    def migrate(
        self,
        now: float,
        targets: Mapping[str, Target],
        chosen: Mapping[str, object],
        at: float | str | None = None,
        epoch: int | None = None,
    ) -> list[Migration]:
        """Returns migrations of operators that begin together.

        The `chosen` settings, unless None, replace those of the run.
        """
        if not targets:
            raise UserError("there is nothing to migrate; give an operator and its target")
        settings = self._with(chosen)
        pace = StepByStep(settings, None if at is None else _time_of_run(at), epoch)
        return [
            Migration(operator, pace, now, goal=goal_of(operator, target, self._slot_bits(operator)), settings=settings)
            for operator, target in targets.items()
        ]

    def follow(self, now: float, operator: str, rows: Any) -> list[Migration]:
        """Returns a migration with one step for each time in the rows."""
        stream = move_stream(_rows(rows), self._slot_bits(operator), f"the moves of {operator}")
        return [Migration(operator, ByTheClock(stream), now, steps=stream.steps, why=f"{len(stream)} moments")]

    def hand_over(self, now: float, instance: str) -> list[Migration]:
        """Returns a migration of all slots of an instance (or of an operator's first) to a new one, in one step."""
        read = _INSTANCE.fullmatch(instance)
        if read is None:
            raise UserError(f"{instance!r} is neither an operator nor an instance; write it as counter or counter[0]")
        operator, index = read["operator"], read["index"]
        goal = handed_over(operator, None if index is None else int(index))
        return self.migrate(now, {operator: goal}, {"strategy": Strategy.ALL_AT_ONCE})

    def _with(self, chosen: Mapping[str, object]) -> MigrationSettings:
        given = {name: value for name, value in chosen.items() if value is not None}
        return checked(MigrationSettings, self._settings.model_dump() | given, "migrate")

    def _slot_bits(self, operator: str) -> int:
        operators = self._graph.operators
        if operator not in operators:
            raise UserError(f"there is no operator {operator!r}; there are {', '.join(operators)}")
        return operators[operator].slot_bits


def _time_of_run(at: float | str) -> float:
    try:
        return seconds(at)
    except ValueError as reason:
        raise UserError(f"migrate at {at!r}: {reason}") from None


def _rows(rows: Any) -> Sequence[Mapping[str, Any]] | pa.Table | Path:
    """Converts rows to a form for `move_stream`; a Spark DataFrame is collected, as it is small."""
    if isinstance(rows, str):
        return Path(rows)
    if hasattr(rows, "toArrow"):
        table: pa.Table = rows.toArrow()
        return table
    found: Sequence[Mapping[str, Any]] | pa.Table | Path = rows
    return found
