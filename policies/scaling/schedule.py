"""Scaling by time: sets the number of instances from given times on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from formats.durations import seconds
from formats.settings import OptionalSeconds, Section
from policies.names import check_names
from policies.observation import History
from policies.scaling.decision import Decision
from primitives.graph import QueryGraph


def _moment(text: object) -> float:
    """Parses a duration since the query began to run; it may be zero."""
    return 0.0 if text in (0, "0", "0s") else seconds(text)


class Step(Section):
    """The numbers of instances of operators from a time on."""

    time: Annotated[float, BeforeValidator(_moment)] = Field(description="Time since the query began to run.")
    operators: dict[str, Annotated[int, Field(ge=1)]] = Field(description="Instances, by operator.")


class ScheduleSettings(Section):
    """Settings of the policy `schedule`."""

    at: tuple[Step, ...] = Field(min_length=1, description="The steps, by time.")
    repeat: OptionalSeconds = Field(None, description="Time after which they begin again; none: never.")

    @field_validator("at")
    @classmethod
    def _in_order(cls, at: tuple[Step, ...]) -> tuple[Step, ...]:
        for earlier, later in pairwise(at):
            if later.time <= earlier.time:
                raise ValueError(f"the step at {later.time:g} s stands after the one at {earlier.time:g} s")
        return at

    @field_validator("repeat")
    @classmethod
    def _after_the_last(cls, repeat: float | None, info: ValidationInfo) -> float | None:
        last = info.data["at"][-1].time if "at" in info.data else 0.0
        if repeat is not None and repeat <= last:
            raise ValueError(f"the last step is at {last:g} s; begin again after it")
        return repeat

    def wanted(self, now: float) -> dict[str, int]:
        """Returns the numbers of instances that the steps up to `now` give, by operator.

        >>> steps = [{"time": "10s", "operators": {"sum": 2}}, {"time": "20s", "operators": {"sum": 4}}]
        >>> schedule = ScheduleSettings(at=steps, repeat="30s")
        >>> [schedule.wanted(now) for now in (5, 15, 25, 35, 45)]
        [{}, {'sum': 2}, {'sum': 4}, {'sum': 4}, {'sum': 2}]
        """
        cycle, phase = divmod(now, self.repeat) if self.repeat else (0, now)
        passed = [step for step in self.at if step.time <= phase]
        wanted: dict[str, int] = {}
        for step in (*(self.at if cycle else ()), *passed):
            wanted |= step.operators
        return wanted


@dataclass(frozen=True, slots=True)
class Schedule:
    """Decides by the time since the query began to run, and nothing else."""

    settings: ScheduleSettings

    def decide(self, history: History) -> list[Decision]:
        now = history.now
        return [
            Decision(operator, parallelism, f"{operator}: {parallelism} by the schedule at {now:.0f} s")
            for operator, parallelism in self.settings.wanted(now).items()
        ]

    def check(self, graph: QueryGraph) -> None:
        """Raises UserError for a wrong name, before its time comes."""
        named = {operator for step in self.settings.at for operator in step.operators}
        check_names("scaling.settings.at", named, graph.order)
