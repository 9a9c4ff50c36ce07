"""Answers to the requests of other processes: what a run tells of itself, and what it does for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.graph import Kind
from seep.dashboard.requests import (
    ACTING,
    MOST_EVENTS,
    NEWEST_EVENTS,
    ActingRequest,
    BalanceLoad,
    DescribeRun,
    DrainNode,
    FinishInput,
    LinkToDashboard,
    ListStateful,
    LookAtState,
    Migrate,
    QueryState,
    ReadDeadLetters,
    ReadLogs,
    ReadMigration,
    ReadMigrations,
    ReadReport,
    ReadSlots,
    ReadState,
    ReadStatus,
    ReadStory,
    RequestCheckpoint,
    RunIsOver,
    ScaleOperator,
    StopRun,
    TakeSavepoint,
    request_of,
)
from seep.driver.archivist import Archivist
from seep.driver.driver import ManagerProcess
from seep.driver.run_logs import RunLogs
from seep.logs.versions import own_version
from seep.record.report import PARTS, graph_of
from seep.record.ring import Ring
from seep.reports.health import RELEVANT, problems
from seep.running.migration_handle import MigrationHandle
from seep.running.state_sql import SqlLimits
from seep.running.state_views import StateViews

if TYPE_CHECKING:
    from seep.running.run import Run

#: The newest events of each kind by which it is found what is wrong.
_OF_EACH_KIND = 200
#: The most migrations requested by other processes whose progress can be asked for, and the most in a list.
_ASKED, _LISTED = 100, 100

Answer = Mapping[str, Any]


class RunAnswers:
    """Answers the requests of other processes for a run of this process."""

    def __init__(self, run: Run, manager: ManagerProcess, archivist: Archivist, logs: RunLogs) -> None:
        self._run, self._manager, self._archivist, self._logs = run, manager, archivist, logs
        settings = run.options.dashboard
        limits = SqlLimits(seconds=settings.sql_seconds, memory=settings.sql_memory)
        self._views = StateViews(run.program.name, run.state, self._state_bytes, settings.state_limit, limits)
        #: migrations requested by other processes
        self._asked = Ring[MigrationHandle](_ASKED)
        self._answers: Mapping[str, Callable[[Any], Answer]] = {
            DescribeRun.do: self._describe,
            ReadStatus.do: self._status,
            ReadReport.do: lambda request: run.report(request.only or PARTS, request.points),
            ReadStory.do: self._story,
            ReadSlots.do: self._slots,
            ReadState.do: self._state,
            QueryState.do: self._sql,
            ReadDeadLetters.do: self._dead_letters,
            ReadLogs.do: self._read_logs,
            ReadMigration.do: self._migration,
            ReadMigrations.do: self._migrations,
            ScaleOperator.do: self._scale,
            Migrate.do: self._migrate,
            BalanceLoad.do: self._balance,
            DrainNode.do: self._drain,
            TakeSavepoint.do: self._savepoint,
            RequestCheckpoint.do: self._checkpoint,
            FinishInput.do: self._finish,
            StopRun.do: self._stop,
            ListStateful.do: lambda _: {"stateful": run.stateful},
            LookAtState.do: self._look,
            LinkToDashboard.do: lambda _: {"url": run.dashboard_url},
        }

    def answer(self, body: Mapping[str, Any]) -> Answer:
        """Answers a request; raises UserError or EnvironmentFault if it cannot be fulfilled."""
        request = request_of(body)
        if request.do not in self._answers:
            raise UserError(f"a run cannot answer {request.do!r}")
        if isinstance(request, ActingRequest) and self._run.is_over:
            raise request.refused(self._run.phase)
        return self._answers[request.do](request)

    def on_call(self, body: Mapping[str, Any]) -> Answer:
        """Answers a process that has the run's secret; what it raises travels as text, with its kind."""
        try:
            return self.answer(body)
        except SeepError as reason:
            return {"refused": str(reason), "kind": _kind(reason)}

    def expire(self) -> None:
        """Forgets what was kept for questions that may follow."""
        self._views.expire()

    def close(self) -> None:
        """Ends the queries over state, when the run is over."""
        self._views.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _describe(self, _: DescribeRun) -> Answer:
        run = self._run
        return {
            "id": run.id,
            "query": run.program.name,
            "version": own_version(),
            "is_live": True,
            "phase": run.phase,
            "failure": str(run.failure or ""),
            "acts": self._acts(),
            "stateful": run.stateful,
        } | graph_of(run.program.graph)

    def _acts(self) -> list[str]:
        """Returns the names of the acting requests that the run would carry out now."""
        if self._run.is_over:
            return []
        without = () if self._run.options.storage.location is not None else (TakeSavepoint.do,)
        return [name for name in ACTING if name not in without]

    def _status(self, request: ReadStatus) -> Answer:
        """Returns the status after so many seconds, or as soon as the run is over."""
        self._manager.ended.wait(request.wait)
        record, events = self._manager.record, self._run.events
        status, sample = record.latest or self._run.status(), record.newest_sample
        number, new = events.after(request.after, MOST_EVENTS) if request.after is not None else (events.number, [])
        return {
            "phase": self._run.phase,
            "failure": str(self._run.failure or ""),
            "status": status.to_json(),
            "wrong": list(problems(status, events.newest(_OF_EACH_KIND, *RELEVANT))),
            "events": [event.to_json() for event in events.after(-1, NEWEST_EVENTS)[1]],
            "new": [event.to_json() for event in new],
            "number": number,
        } | ({"sample": sample and sample.to_json()} if request.sample else {})

    def _story(self, _: ReadStory) -> Answer:
        return {"events": [event.to_json() for event in self._run.events], "story": self._manager.machine_story()}

    def _slots(self, request: ReadSlots) -> Answer:
        """Returns the owners of slots after all announced plans, and the rows per second of each."""
        graph, operator = self._run.program.graph, request.operator
        if operator not in graph.operators or graph.kind(operator) is Kind.SOURCE:
            known = ", ".join(each for each in graph.order if graph.kind(each) is not Kind.SOURCE)
            raise UserError(f"{operator!r} is no operator with slots; those are {known}")
        return self._manager.slot_load(operator)

    def _state(self, request: ReadState) -> Answer:
        return self._views.page(request.operator, request.container, request.key, request.offset, request.limit)

    def _sql(self, request: QueryState) -> Answer:
        return self._views.sql(request.operator, request.sql, request.limit)

    def _state_bytes(self, operator: str) -> int:
        """Returns the bytes of an operator's state, as its instances have reported last."""
        sizes = self._manager.record.state_bytes
        return sum(size for instance, size in sizes.items() if instance.operator == operator)

    def _dead_letters(self, request: ReadDeadLetters) -> Answer:
        """Returns the newest dead letters, newest last, and the number of all by operator."""
        if request.operator is not None and request.operator not in self._run.program.graph.operators:
            known = ", ".join(self._run.program.graph.order)
            raise UserError(f"there is no operator {request.operator!r}; there are {known}")
        letters, totals = self._manager.record.dead_letters(request.operator)
        return {"letters": [letter.to_json() for letter in letters], "totals": totals}

    def _read_logs(self, request: ReadLogs) -> Answer:
        return self._logs.answer(request.node, request.level, request.after, request.wait)

    def _migration(self, request: ReadMigration) -> Answer:
        handle = self._asked.numbered(request.migration)
        if handle is None:
            raise UserError(
                f"no migration {request.migration} was asked for from outside, or too many were since; see the events"
            )
        return handle.progress.to_json()

    def _migrations(self, _: ReadMigrations) -> Answer:
        return {"migrations": [each.to_json() for each in self._run.migrations()[-_LISTED:]]}

    def _look(self, request: LookAtState) -> Answer:
        """Returns the state of an operator as plain data, for another process of the same user."""
        cut = self._run.read_state(request.operator)
        return {
            "epoch": cut.cut.epoch,
            "slot_bits": self._run.program.graph.operators[request.operator].slot_bits,
            "parts": [[instance, part.slots, list(part.reference)] for instance, part in cut.parts.items()],
        }

    # -- acting -------------------------------------------------------------------------------------------------------

    def _scale(self, request: ScaleOperator) -> Answer:
        self._run.scale(request.operator, request.to)
        return {}

    def _migrate(self, request: Migrate) -> Answer:
        chosen = request.model_dump(exclude={"operator", "to"}, exclude_unset=True)
        self._asked.append(self._run.migrate(request.operator, request.to, **chosen))
        return {"migration": self._asked.total - 1}

    def _balance(self, request: BalanceLoad) -> Answer:
        self._run.balance(request.operator)
        return {}

    def _drain(self, request: DrainNode) -> Answer:
        self._run.drain(request.node)
        return {}

    def _savepoint(self, _: TakeSavepoint) -> Answer:
        return {"id": self._run.savepoint()}

    def _checkpoint(self, request: RequestCheckpoint) -> Answer:
        if request.operator is not None and request.operator not in self._run.stateful:
            known = ", ".join(self._run.stateful) or "none"
            raise UserError(f"{request.operator!r} keeps no state; those that do: {known}")
        self._run.checkpoint(request.operator)
        return {}

    def _finish(self, _: FinishInput) -> Answer:
        self._run.finish()
        return {}

    def _stop(self, request: StopRun) -> Answer:
        saved = {"id": self._run.savepoint()} if request.savepoint else {}
        if not request.savepoint:
            self._archivist.store_before_stop()
        self._manager.halt()
        return saved


def _kind(reason: SeepError) -> str:
    """Returns the name of the class with which the other process raises an error again."""
    kinds = (RunIsOver, UserError, EnvironmentFault)
    return next((kind.__name__ for kind in kinds if isinstance(reason, kind)), SeepError.__name__)
