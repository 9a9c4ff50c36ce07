"""Requests: all that others may ask of a run or have it do; one table for the run's own channel and for REST.

A request is a mapping `{"do": NAME, **fields}`. One with a path is also a route of the REST API below `/api/v1`: its
fields are query parameters, or the JSON object of a POST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from formats.settings import OptionalSeconds
from primitives.errors import UserError
from seep.dashboard.access import Role
from seep.logs.levels import LogLevel
from seep.record.report import PARTS

#: The most seconds that a request for the status waits in the run.
LONGEST_WAIT = 20.0
#: The most new events that are sent with a status, and the newest ones that are always sent.
MOST_EVENTS, NEWEST_EVENTS = 500, 20
#: The most numbers of a request: larger ones are no numbers of epochs, lines or rows.
_LARGEST = (1 << 53) - 1
#: The most fields of which a message says what is wrong.
_TOLD = 5


class Answering(Protocol):
    """Answers requests: a run in this process, one in another, or a finished one."""

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the answer as JSON values; raises UserError or EnvironmentFault."""
        ...


class RunIsOver(UserError):
    """A run that is over was asked to act."""


Name = Annotated[str, Field(min_length=1, max_length=200)]
OperatorName = Annotated[Name, Field(description="Name of an operator.")]


class RunRequest(BaseModel):
    """The base of all requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    do: ClassVar[str]  #: its name
    path: ClassVar[str | None] = None  #: below `/api/v1`; None: not by REST
    method: ClassVar[Literal["GET", "POST"]] = "GET"
    role: ClassVar[Role] = Role.VIEWER

    def body(self) -> dict[str, Any]:
        """Returns the request as it travels: only with fields that are given."""
        return {"do": self.do} | self.model_dump(mode="json", exclude_unset=True)


class ActingRequest(RunRequest):
    """The base of requests that change a run."""

    model_config = ConfigDict(strict=True)

    method = "POST"
    role = Role.OPERATOR

    def refused(self, phase: str) -> RunIsOver:
        """Returns the error with which a run that is over refuses it."""
        return RunIsOver(f"the run is over ({phase}), so it cannot carry out {self.do!r} any more")


# -- reading -----------------------------------------------------------------------------------------------------------


class DescribeRun(RunRequest):
    """What the run is: its query graph, its phase, and which acting requests it takes now."""

    do, path = "run", "/run"


class ReadStatus(RunRequest):
    """The status of this moment, what is wrong now, and the newest events."""

    do, path = "status", "/status"

    wait: float = Field(
        0.0, ge=0, le=LONGEST_WAIT, description="Seconds to wait before the answer; less if the run ends meanwhile."
    )
    after: int | None = Field(
        None,
        ge=-1,
        le=_LARGEST,
        description=f"Number of the last known event: `new` has the later ones, at most {MOST_EVENTS}; -1: no event is "
        "known. Without it, `new` is empty.",
    )
    sample: bool = Field(False, description="Whether to send the newest point of the report's time series, too.")


class ReadReport(RunRequest):
    """The report so far: summary, latencies, migrations, spans, events and time series."""

    do, path = "report", "/report"

    only: list[Literal[PARTS]] | None = Field(  # type: ignore[valid-type]
        None, min_length=1, max_length=len(PARTS), description="The parts that are wanted; all if not given."
    )
    points: int | None = Field(
        None, ge=2, le=10_000, description="The most points of the time series; of earlier times there are fewer then."
    )


class ReadStory(RunRequest):
    """All kept events, and the last messages of the machines of the protocol."""

    do, path = "story", "/story"


class ReadSlots(RunRequest):
    """Who owns which slots of an operator, and which slots are hot."""

    do, path = "slots", "/slots"

    operator: OperatorName


class ReadState(RunRequest):
    """Rows of the state of an operator: a page of a container, or those of one key."""

    do, path = "state", "/state"

    operator: OperatorName
    container: Name | None = Field(None, description="Name of a container; may be left out if there is only one.")
    key: list[Annotated[str, Field(max_length=1000)]] | None = Field(
        None, min_length=1, max_length=20, description="The key as texts, one for each key column."
    )
    offset: int = Field(0, ge=0, le=_LARGEST, description="Number of rows to skip.")
    limit: int = Field(50, ge=1, le=500, description="The most rows of the answer.")


class QueryState(RunRequest):
    """The result of an SQL query over the state of an operator, of which each container is a table."""

    model_config = ConfigDict(strict=True)

    do, path, method = "sql", "/sql", "POST"

    operator: OperatorName
    sql: str = Field(min_length=1, max_length=10_000, description="A SELECT statement.")
    limit: int = Field(100, ge=1, le=1000, description="The most rows of the answer.")


class ReadDeadLetters(RunRequest):
    """The newest rows that could not be processed, with the errors."""

    do, path = "dead-letters", "/dead-letters"

    operator: Name | None = Field(None, description="Name of an operator; without it, of all operators.")


class ReadLogs(RunRequest):
    """Log lines of all processes of the run, after a cursor."""

    do, path = "logs", "/logs"

    node: Name | None = Field(None, description="Name of a node; without it, lines of all processes.")
    level: LogLevel = Field(LogLevel.INFO, description="The lowest level.")
    after: int = Field(0, ge=0, le=_LARGEST, description="The cursor `next` of the answer before; 0: from the first.")
    wait: float = Field(0.0, ge=0, le=LONGEST_WAIT, description="The most seconds to wait for new lines.")


class ReadMigration(RunRequest):
    """The progress of a migration that was requested by a request."""

    do, path = "migration", "/migration"

    migration: int = Field(ge=0, le=_LARGEST, description="Number of the migration, from the answer of `migrate`.")


class ReadMigrations(RunRequest):
    """The progress of the newest migrations, including those of scaling and draining."""

    do, path = "migrations", "/migrations"


# -- acting ------------------------------------------------------------------------------------------------------------

_Instances = Annotated[int, Field(ge=1, le=1 << 20, description="Number of instances at the end.")]


class ScaleOperator(ActingRequest):
    """Scales an operator in the background, as if a policy had decided it."""

    do, path = "scale", "/scale"

    operator: OperatorName
    to: _Instances


class Migrate(ActingRequest):
    """Moves slots of an operator, so that it has a number of instances at the end."""

    do, path = "migrate", "/migrate"

    operator: OperatorName
    to: _Instances
    strategy: Name | None = Field(
        None, description="all-at-once, fluid, batched or optimised; the run's setting if not given."
    )
    batch: int | None = Field(None, ge=1, le=1 << 20, description="Number of slots in each step, if batched.")
    gap: OptionalSeconds = Field(None, description="Time between steps, such as 0.2 or 200ms.")
    at: OptionalSeconds = Field(None, description="Time of the run at which it begins, such as 30 or 1min.")


class BalanceLoad(ActingRequest):
    """Balances the load of an operator's instances in the background."""

    do, path = "balance", "/balance"

    operator: OperatorName


class DrainNode(ActingRequest):
    """Moves everything on a node elsewhere and returns its VM, in the background."""

    do, path = "drain", "/drain"

    node: Name = Field(description="Name of a node.")


class TakeSavepoint(ActingRequest):
    """Stores the state of the whole query until it is disposed of; answers when it is stored."""

    do, path = "savepoint", "/savepoint"


class RequestCheckpoint(ActingRequest):
    """Asks for a checkpoint now, of one operator or of all."""

    do, path = "checkpoint", "/checkpoint"

    operator: Name | None = Field(None, description="Name of an operator that keeps state; without it, all.")


class FinishInput(ActingRequest):
    """Ends the input; rows that were read are still processed and committed."""

    do, path = "finish", "/finish"


class StopRun(ActingRequest):
    """Stops the run at once; a later run continues with what is not committed."""

    do, path = "stop", "/stop"

    savepoint: bool = Field(False, description="Whether to take a savepoint before.")


# -- for processes of the same user only -------------------------------------------------------------------------------


class ListStateful(RunRequest):
    """The operators that keep state."""

    do = "operators"


class LookAtState(RunRequest):
    """The whole state of an operator after one epoch, as parts of a checkpoint, which are no JSON values."""

    do = "look"

    operator: OperatorName


class LinkToDashboard(RunRequest):
    """The address of the run's own dashboard, with a code to log in once; empty without one."""

    do = "dashboard"


#: All requests by name.
REQUESTS: Mapping[str, type[RunRequest]] = {
    each.do: each
    for each in (
        DescribeRun,
        ReadStatus,
        ReadReport,
        ReadStory,
        ReadSlots,
        ReadState,
        QueryState,
        ReadDeadLetters,
        ReadLogs,
        ReadMigration,
        ReadMigrations,
        ScaleOperator,
        Migrate,
        BalanceLoad,
        DrainNode,
        TakeSavepoint,
        RequestCheckpoint,
        FinishInput,
        StopRun,
        ListStateful,
        LookAtState,
        LinkToDashboard,
    )
}
#: The names of requests that change a run.
ACTING = tuple(name for name, each in REQUESTS.items() if each.role is Role.OPERATOR)


def request_of(body: Mapping[str, Any]) -> RunRequest:
    """Returns the request that a mapping stands for; raises UserError, which names the field that is wrong.

    >>> request_of({"do": "scale", "operator": "counter", "to": 3})
    ScaleOperator(operator='counter', to=3)
    """
    do = body.get("do")
    kind = REQUESTS.get(do) if isinstance(do, str) else None
    if kind is None:
        raise UserError(f"a run does not know the request {do!r}; it knows {', '.join(REQUESTS)}")
    try:
        return kind.model_validate({name: value for name, value in body.items() if name != "do"})
    except ValidationError as reason:
        raise UserError(f"request {do!r}: {wrong_fields(reason.errors())}") from None


def wrong_fields(errors: Any) -> str:
    """Returns what is wrong with the fields of a request, in words, without the values themselves."""
    found = [(".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")) for each in errors]
    return "; ".join(dict.fromkeys(f"{where or 'the whole'}: {what}" for where, what in found[:_TOLD]))
