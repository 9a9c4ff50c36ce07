"""Answers: the form of what a run answers to each request, for the description of the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from seep.control.migration import MigrationProgress


class RunAnswer(BaseModel):
    """The base of answers; a later version may add fields."""

    model_config = ConfigDict(extra="allow")


class NothingToSay(RunAnswer):
    """The request is accepted; its effects can be seen in the status and the events."""


class ErrorAnswer(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="A sentence.")


class ToldEvent(RunAnswer):
    """Something that has happened; the fields that every kind may have, and those of its kind."""

    kind: str = Field(description="In words, such as `scaled out`.")
    at: float = Field(description="Seconds since the query began, negative before that.")
    operator: str | None = None
    instance: str | None = Field(None, description="Such as `counter[2]`.")
    node: str | None = None
    detail: str = ""
    seconds: float | None = Field(None, description="Its duration.")
    parts: dict[str, float] = Field(default_factory=dict, description="Parts of these seconds, by name.")
    numbers: dict[str, float] = Field(default_factory=dict, description="Other figures by name.")


class RunDescription(RunAnswer):
    """A run."""

    id: str
    query: str
    version: str = Field(description="Version of seep.")
    is_live: bool = Field(description="False if it is shown from its report.")
    phase: str = Field(description="starting, running, finished, halted, failed or stopped.")
    failure: str = Field(description="The error with which it failed, or nothing.")
    acts: list[str] = Field(description="The acting requests that it takes now.")
    operators: dict[str, str] = Field(description="The kind of each operator.")
    edges: list[list[str]] = Field(description="Pairs: upstream, downstream.")
    stateful: list[str] = Field(description="The operators that keep state.")
    role: str = Field(description="Of the visitor: viewer or operator.")
    csrf: str | None = Field(
        None, description="Only for a browser: what it must send as `X-Seep-Csrf` with every POST."
    )


class StatusAnswer(RunAnswer):
    """A run at one moment."""

    phase: str
    failure: str
    status: dict[str, Any] = Field(description="Rates, latency, operators, instances, nodes, VMs, checkpoints, totals.")
    wrong: list[str] = Field(description="What is wrong now, in sentences, worst first.")
    events: list[ToldEvent] = Field(description="The newest events, at most 20.")
    new: list[ToldEvent] = Field(description="The events after `after`.")
    number: int = Field(description="Number of the newest event.")
    sample: dict[str, Any] | None = Field(None, description="The newest point of the report's time series.")


class ReportAnswer(RunAnswer):
    """The report, as `--report` writes it; only the wanted parts."""

    query: str = ""
    summary: dict[str, Any] = Field(default_factory=dict)
    latencies: dict[str, Any] = Field(default_factory=dict)
    migrations: list[dict[str, Any]] = Field(default_factory=list)
    spans: list[dict[str, Any]] = Field(default_factory=list)
    totals: dict[str, Any] = Field(default_factory=dict)
    events: list[ToldEvent] = Field(default_factory=list)
    series: list[dict[str, Any]] = Field(default_factory=list)
    graph: dict[str, Any] = Field(default_factory=dict)
    slots: dict[str, Any] = Field(default_factory=dict)
    story: dict[str, list[str]] = Field(default_factory=dict)


class StoryAnswer(RunAnswer):
    """What happened, for somebody who looks for the cause of a failure."""

    events: list[ToldEvent]
    story: dict[str, list[str]] = Field(description="The last messages and answers of each machine.")


class HottestSlotAnswer(RunAnswer):
    """The slot that had the most rows in the last window of time."""

    slot: int
    instance: int = Field(description="Index of its owner.")
    share: float = Field(description="Fraction of the operator's rows.")
    key: str | None = Field(description="Its heaviest key, if known.")


class SlotsAnswer(RunAnswer):
    """The owners of an operator's slots: from each of `starts` on, until the next, the instance in `owners`."""

    operator: str
    slots: int = Field(description="Number of all slots.")
    starts: list[int]
    owners: list[int]
    rows: list[float] = Field(description="Rows per second, by buckets of slots; empty before they are counted.")
    bucket: int = Field(description="Number of slots in each of `rows`.")
    seconds: float = Field(description="The time over which rows were counted.")
    hottest: HottestSlotAnswer | None


class ColumnAnswer(RunAnswer):
    """A column of a table."""

    name: str
    type: str


class ContainerAnswer(RunAnswer):
    """A container of state."""

    columns: list[ColumnAnswer]
    keys: list[str] = Field(description="Names of the key columns.")
    rows: int = Field(description="Number of its rows.")


class StateAnswer(RunAnswer):
    """Rows of the state of an operator after one epoch."""

    operator: str
    epoch: int
    containers: dict[str, ContainerAnswer]
    container: str | None = Field(description="The container of the rows.")
    rows: list[dict[str, Any]]
    offset: int
    total: int


class QueryAnswer(RunAnswer):
    """The result of an SQL query."""

    operator: str
    epoch: int
    columns: list[ColumnAnswer]
    rows: list[list[Any]]
    total_known: bool
    more: bool = Field(description="Whether there are further rows.")
    seconds: float


class DeadLetterAnswer(RunAnswer):
    """A row that could not be processed."""

    operator: str
    instance: str
    at: float = Field(description="Seconds of the run.")
    epoch: int
    function: str = Field(description="Name of the user's function; empty if it is not known.")
    error: str
    row: str


class DeadLettersAnswer(RunAnswer):
    """Rows that could not be processed."""

    letters: list[DeadLetterAnswer] = Field(description="The newest, at most 100, oldest first.")
    totals: dict[str, int] = Field(description="Their number by operator.")


class LogsAnswer(RunAnswer):
    """Log lines."""

    lines: list[dict[str, Any]] = Field(description="Each has time, level, logger, message, and fields as known.")
    next: int = Field(description="The cursor for the next request.")
    missed: int = Field(description="Lines before these that are not kept any more.")
    last: bool = Field(description="Whether there are no further lines now.")
    over: bool = Field(description="Whether there will be none.")


class MigrationsAnswer(RunAnswer):
    """The newest migrations, at most 100, oldest first."""

    migrations: list[MigrationProgress]


class MigrationNumber(RunAnswer):
    """A migration was begun."""

    migration: int = Field(description="Its number, for the request `migration`.")


class SavepointAnswer(RunAnswer):
    """A savepoint is complete."""

    id: int = Field(description="Its number, for `--restore`.")


class StopAnswer(RunAnswer):
    """The run stops."""

    id: int | None = Field(None, description="Number of the savepoint, if one was asked for.")


#: The answer of each request that has a path.
ANSWERS: Mapping[str, type[Any]] = {
    "run": RunDescription,
    "status": StatusAnswer,
    "report": ReportAnswer,
    "story": StoryAnswer,
    "slots": SlotsAnswer,
    "state": StateAnswer,
    "sql": QueryAnswer,
    "dead-letters": DeadLettersAnswer,
    "logs": LogsAnswer,
    "migration": MigrationProgress,
    "migrations": MigrationsAnswer,
    "migrate": MigrationNumber,
    "savepoint": SavepointAnswer,
    "stop": StopAnswer,
    **dict.fromkeys(("scale", "balance", "drain", "checkpoint", "finish"), NothingToSay),
}
