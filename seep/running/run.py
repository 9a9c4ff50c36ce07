"""A run: a query on its nodes, from `launch` until it has finished, stopped or failed."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from policies.scaling.decision import Policy
from policies.scaling.governor import Governor
from policies.scaling.registry import make_policy
from primitives.errors import SeepError, UserError
from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from seep.channels.process import ProcessId
from seep.channels.security import Security
from seep.control.balancing import check_balance
from seep.control.migration import Migration, MigrationProgress
from seep.control.replica_groups import check_backup
from seep.control.requests import MigrationRequests
from seep.control.scalings import check_scaling
from seep.control.steward import Steward, StewardSettings
from seep.control.targets import Target
from seep.dashboard.server import DashboardServer, PemFiles, check_dashboard
from seep.dashboard.settings import dashboard_settings
from seep.dashboard.tokens import access_of
from seep.driver.archivist import Archivist
from seep.driver.driver import ManagerProcess
from seep.driver.feeds import Feeds, check_feeds, session_of
from seep.driver.node_fleet import NodeFleet
from seep.driver.node_register import NodeRecord
from seep.driver.options import RunOptions
from seep.driver.run_logs import RunLogs, node_settings
from seep.driver.spark_publisher import SparkPublisher
from seep.driver.steering import Steering
from seep.logs.redaction import header_secrets
from seep.metrics.endpoint import MetricsEndpoint, check_metrics
from seep.metrics.otlp.headers import check_otlp
from seep.metrics.settings import metrics_settings
from seep.node.main import NodeTask, serve
from seep.node.node import NodeSettings
from seep.protocol.cuts import CutComplete
from seep.protocol.manager.plans import Accepted, Refused
from seep.query.program import Program
from seep.record.facts import Facts
from seep.record.log import EventLog
from seep.record.report import PARTS
from seep.record.status import Status
from seep.reports.notebook import RunReport
from seep.rows.position import rows_up_to
from seep.rows.rate import Rate
from seep.running import live_runs
from seep.running.answering import RunAnswers
from seep.running.interrupts import ENDING, Interrupts, uninterrupted
from seep.running.migration_handle import MigrationHandle
from seep.running.queryable import StateView
from seep.running.remote_control import RunListing
from seep.running.resume import catalogue_of, check_resume, resume_of
from seep.spark.capacity import capacity
from seep.spark.inlet.source import spark_sources
from seep.spark.preflight import of_session, raise_first
from seep.spark.session import Host, open_session
from seep.threads.requests import answer_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from seep.metrics.otlp.push import OtlpPush
    from seep.query.query import Query
    from seep.running.frames import Frames

Progress = Callable[[str], None]

#: Seconds between two samples of a run's status.
SAMPLED = 0.5


def launch(
    query: Query | Program,
    spark: SparkSession | SparkContext | None = None,
    *,
    master: str | None = None,
    parallelism: Mapping[str, int] | None = None,
    rate: Rate | None = None,
    verbose: bool = False,
    progress: Progress | None = None,
    replace: bool = False,
    **options: Any,
) -> Run:
    """Starts a query on Spark; returns when it runs. See `RunOptions` for the other keywords.

    Without a session, it starts Spark in this process (`local[64]`, or `master`), and stops it when the run is over or
    stopped. `progress` is called with a line of text at each step of the start. With `replace`, runs of the same query
    that this program has launched before are stopped first, so that a cell of a notebook can be run again.

    >>> run = launch(query, epoch=0.02, seconds=30)   # doctest: +SKIP
    >>> with run:                                     # doctest: +SKIP
    ...     run.wait()
    """
    chosen = _options(options)
    program = _program(query, parallelism, chosen, rate)
    check_resume(program, chosen)
    check_balance(program.graph, chosen.balance)
    check_backup(chosen.backup, program.graph, chosen.storage.location is not None)
    policy = make_policy(chosen.scaling)
    check_scaling(chosen.scaling, policy, program.graph)
    check_metrics(chosen.metrics)
    check_otlp(chosen.metrics.otlp)
    check_dashboard(chosen.dashboard)
    tell = progress or (lambda _: None)
    wanted = chosen.nodes or _instances(program)
    check_feeds(program, chosen.storage.location is not None, wanted)
    slots = wanted + chosen.whole_pool.size + bool(spark_sources(program))  # Spark's own tasks need at least one
    spark = spark if spark is not None else session_of(program)
    live_runs.make_way(program.name, replace, tell)
    if spark is None:
        live_runs.check_no_session()
    tell("starting Spark" if spark is None else "using the given Spark session")
    host = open_session(spark, master=master, slots_needed=slots, name=program.name, verbose=verbose)
    try:
        if chosen.pool.provider == "spark":
            _check(host, slots)
        run = Run(program, chosen, host, policy)
    except BaseException:
        host.close()
        raise
    try:
        run._start(wanted, tell)
    except BaseException:
        run.stop()
        raise
    if host.own:
        run.stop_when_over()
    return run


class Run:
    """A running query. Use it as a context: everything that it started ends with the block, even after an exception."""

    id: str  #: the id in the list of `seep runs`
    program: Program
    options: RunOptions
    #: the program also uses the run's own session, so the session lasts until the run is stopped
    is_lent: bool

    def __init__(self, program: Program, options: RunOptions, host: Host, policy: Policy) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.program, self.options = program, options
        self._host = host
        self._security = _security(options, host.driver_host)
        self._access = access_of(options.dashboard)
        self._manager = ManagerProcess(
            program, options, host.driver_interface, host.driver_host, self._security, self.id
        )
        try:
            self._make_services(host, policy)
        except BaseException:
            self._manager.close()
            self._manager.close_port()
            raise
        self._metrics: MetricsEndpoint | None = None
        self._push: OtlpPush | None = None
        self._dashboard: DashboardServer | None = None
        self._interrupts = Interrupts()
        self._is_launched = self._is_ended = self._is_asked_to_finish = False
        self._stopping = threading.Lock()
        self.is_lent = False
        live_runs.enter(self)
        atexit.register(self.stop)

    def _make_services(self, host: Host, policy: Policy) -> None:
        """Makes the parts around the manager: logs, nodes, scaling, storage."""
        self._push_headers = check_otlp(self.options.metrics.otlp)
        secrets = (*header_secrets(self._push_headers.values()), *self._access.secrets)
        self._logs = RunLogs(self._manager, self.options.log, self.id, self._security, secrets)
        task = NodeTask(
            self.program,
            NodeSettings(
                run=self.id,
                driver=self._manager.address,
                security=self._security,
                epoch=self.options.epoch,
                heartbeat=self.options.heartbeat,
                patience=self.options.patience,
                buffer_budget=self.options.buffer_budget,
                bulk_credit=self.options.bulk_credit,
                state_budget=self.options.state_memory,
                vm=self.options.vm,
                storage=self.options.storage,
                backup=self.options.backup,
                checkpoint=self.options.checkpoint,
                begins_from=self.program.resume.checkpoint if self.program.resume else None,
                log=node_settings(self.options.log, host.is_local),
            ),
        )
        self._fleet = NodeFleet(self._manager, self.options, host, serve, task, self.id)
        governor = Governor(policy, self.options.scaling, _most_instances(self.program))
        every = self.options.storage.every * self.options.checkpoint if self.options.checkpoint else None
        self._archivist = Archivist(
            self._manager, self.options.storage, catalogue_of(self.options, self.program.name), every, self.id
        )
        steps = self.options.migration
        steward = Steward(self.program.graph, governor, _steward_settings(self.options))
        self._steering = Steering(self._manager, steward, self._fleet.pool)
        self._requests = MigrationRequests(self.program.graph, steps)
        self._answers = RunAnswers(self, self._manager, self._archivist, self._logs)
        self._manager.serve("control", self._answers.on_call)
        self._feeds = Feeds(self._manager, self.program, self._security, catalogue_of(self.options, self.program.name))
        self._listed = RunListing(self.id, self.program.name, ProcessId.this(), self._manager.address, self._security)
        self._publisher = SparkPublisher(self._manager, host.is_local)
        self._logs.begins(str(host.context.master))
        self._manager.start()

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start(self, nodes: int, tell: Progress) -> None:
        self._archivist.begin(self._feeds.first_batches)
        if self._has_nothing_to_do():
            self._end_unchanged()
            return
        self._open_endpoints()
        gathered = self._fleet.gather(nodes, tell)
        tell("starting the query")
        self._manager.launch(_placement(self.program, gathered))
        self._is_launched = True
        self._fleet.launched()
        self._manager.every(SAMPLED, self._sample)
        self._steering.begin()
        self._archivist.start()
        self._feeds.start()
        self._publisher.start()
        self._listed.enlist()
        if self.options.seconds is not None:
            self._manager.after(self.options.seconds, self.finish)

    def _open_endpoints(self) -> None:
        if self.options.metrics.port is not None:
            self._metrics = MetricsEndpoint(self.options.metrics, self.id, self.program.name)
        if self.options.metrics.otlp.url is not None:
            from seep.metrics.otlp.push import OtlpPush  # with a library that is only loaded if it is needed

            log, settings = self._logs.named("seep.metrics"), self.options.metrics.otlp
            record, query = self._manager.record, self.program.name
            self._push = OtlpPush(settings, self._push_headers, self.id, query, record, log)
        if self.options.dashboard.port is not None:
            self._dashboard = DashboardServer(
                self.options.dashboard,
                self._answers,
                self._access,
                _tls(self._security),
                self._logs.named("seep.dashboard"),
            )

    def _has_nothing_to_do(self) -> bool:
        """Whether all sources had ended before; for a source that Spark pushes to, that is known only with a batch."""
        return self.program.begins_at_end and not spark_sources(self.program)

    def _end_unchanged(self) -> None:
        self.events.begin()
        self._archivist.start()
        self._manager.conclude_unchanged()
        self._publisher.start()

    # -- watching -----------------------------------------------------------------------------------------------------

    @property
    def events(self) -> EventLog:
        return self._manager.events

    @property
    def failure(self) -> SeepError | None:
        """The error with which the run failed, if it did."""
        return self._manager.failure

    @property
    def finished(self) -> bool:
        """Whether all input is processed and committed."""
        return bool(self.events.of("finished"))

    @property
    def goes_on(self) -> bool:
        """Whether it continues after epochs of an earlier run."""
        return self.program.resume is not None and self.program.resume.beginning.epoch > 0

    @property
    def halted(self) -> bool:
        """Whether it was stopped before the end of its input."""
        return bool(self.events.of("halted"))

    @property
    def is_over(self) -> bool:
        """Whether it is finished, halted, failed or stopped."""
        return self._manager.ended.is_set()

    @property
    def phase(self) -> str:
        """One of: starting, running, finished, halted, failed, stopped."""
        if not self.is_over:
            return "running" if self._is_launched else "starting"
        found = {"failed": self.failure is not None, "finished": self.finished, "halted": self.halted}
        return next((word for word, holds in found.items() if holds), "stopped")

    @property
    def owns_session(self) -> bool:
        """Whether its Spark session was started for it, and has not ended."""
        return self._host.own and self._host.is_open

    def __repr__(self) -> str:
        rows = f"{self.rows_read:,} rows read"
        why = f": {self.failure}".splitlines()[0] if self.failure else ""
        return f"<Run {self.id} of query {self.program.name!r}, {self.phase}, {rows}{why}>"

    def _repr_html_(self) -> str:
        """Shows its figures, its graph and the newest events in a notebook, at this moment."""
        from seep.reports.notebook import run_html

        title = f"run {self.id} of query {self.program.name}: {self.phase}"
        shown = [event for event in self.events if event.at >= 0]
        return run_html(title, self.program.graph, None if self._is_ended else self.status(), shown, self.failure)

    @property
    def nodes(self) -> dict[str, NodeRecord]:
        """The live nodes."""
        live = frozenset[str]() if self._is_ended else self._manager.live_nodes()
        return {name: record for name, record in self._manager.nodes.items() if name in live}

    @property
    def placement(self) -> dict[str, str]:
        """The node of each instance."""
        return {str(instance): node for instance, node in self._manager.placement().items()}

    @property
    def manager_process(self) -> ManagerProcess:
        """The process of the manager: for tests and tools."""
        return self._manager

    def status(self) -> Status:
        """Returns its current status."""
        pool = self._fleet.pool
        vms = {state.value: count for state, count in pool.counts().items() if count}
        return self._steering.status(vms, sum(pool.vm_seconds().values()))

    def facts(self) -> Facts:
        """Returns everything that is known of it now, as one immutable value: the steward decides by it."""
        return self._steering.facts()

    def _sample(self) -> None:
        if not self._is_ended:
            self._manager.record.sample(self.status())
            self._answers.expire()
            self._show_facts()

    def _show_facts(self) -> None:
        shown = [each for each in (self._metrics, self._push) if each is not None]
        if shown:
            facts = self._steering.facts()
            for each in shown:
                each.show(facts)

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics can be scraped; None if they were not asked for."""
        return self._metrics.url if self._metrics is not None else None

    @property
    def dashboard_url(self) -> str | None:
        """A link to its live page that logs a browser in, once; another at each reading. None without a dashboard."""
        return self._dashboard.login_url() if self._dashboard is not None else None

    @property
    def dashboard_warning(self) -> str | None:
        """What its users should know of the dashboard's settings: that others can read what is sent to it."""
        return self._dashboard.warning if self._dashboard is not None else None

    def report(self, only: Container[str] = PARTS, points: int | None = None) -> RunReport:
        """Returns events, time series and a summary as plain data, during the run and after it; or `only` parts.

        The series has all points that are kept, or at most so many `points`, fewer of the earlier ones.
        """
        migrations = self._steering.report()
        report = self._manager.record.report(
            self.program.name,
            rows=self.rows_read,
            is_over=self.finished and self._manager.ended.is_set(),
            vm_seconds=self._fleet.pool.vm_seconds(),
            migrations=migrations["migrations"],
            all_migrations=migrations["total"],
            failure=self.failure,
            story=self._manager.story,
            topology=self._manager.topology(),
            only=only,
            points=points,
        )
        return RunReport(report)

    @property
    def rows_read(self) -> int:
        """The number of rows that the sources have read, each counted once even after failures: from the source log."""
        return sum(rows_up_to(self.positions(source)) for source in self.program.sources)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run is over, and raises its failure; returns False if that takes longer than `timeout`.

        Ctrl-C meanwhile ends the input, and the rows already read are processed; Ctrl-C again stops the run at once.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._interrupts.counted(self.stop):
            while not self._manager.ended.wait(0.05):
                self._finish_if_interrupted()
                if deadline is not None and time.monotonic() > deadline:
                    return False
        self._publisher.join()
        if self._manager.failure:
            raise self._manager.failure
        return True

    def _finish_if_interrupted(self) -> None:
        if self._interrupts.asked_to_finish and not self._is_asked_to_finish:
            self._is_asked_to_finish = True
            sys.stderr.write(f"run {self.id}: {ENDING}\n")
            self.finish()

    def positions(self, source: str) -> dict[int, Any]:
        """Returns the positions up to which a source has been read, by partition: from the source log."""
        return dict(self._manager.positions[source])

    def result(self, sink: str) -> pa.Table:
        """Returns all rows that a `collect` sink has committed so far."""
        if sink not in self._manager.stores.stores:
            known = ", ".join(self._manager.stores.stores) or "none"
            raise UserError(f"{sink!r} is not a sink that collects in the driver; those of this query: {known}")
        return self._manager.stores.table(sink)

    # -- into Spark ---------------------------------------------------------------------------------------------------

    def to_spark(self, spark: SparkSession | None = None, sink: str | None = None, **options: Any) -> DataFrame:
        """Returns a streaming DataFrame of a sink `seep.sinks.spark(…)`; name the `sink` if there are several.

        It is for one Spark query: rows that this has processed are removed. Its checkpoint and the sink's directory
        belong together. The option `maxBytesPerTrigger` limits the bytes of a batch.
        """
        return self._frames(spark).stream(sink, options)

    def to_batch_df(self, spark: SparkSession | None = None, sink: str | None = None) -> DataFrame:
        """Waits for the end; returns all rows of a sink `seep.sinks.spark(…)` or `collect()`."""
        return self._frames(spark).batch(sink)

    def to_parquet(
        self, path: str | Path, *, checkpoint: str | Path | None = None, sink: str | None = None
    ) -> StreamingQuery:
        """Starts a Spark query that writes Parquet files; the files that Spark lists have each row exactly once.

        Its checkpoint is next to the sink's files, unless given. To continue after a restart, make the same call.
        """
        return self._frames(None).to_parquet(path, checkpoint, sink)

    def to_table(self, table: str, *, checkpoint: str | Path | None = None, sink: str | None = None) -> StreamingQuery:
        """Starts a Spark query that appends the rows to a table of Spark's catalogue; otherwise like `to_parquet`."""
        return self._frames(None).to_table(table, checkpoint, sink)

    def _frames(self, spark: SparkSession | None) -> Frames:
        from seep.running.frames import Frames

        if spark is None and not self._host.is_open:
            raise UserError(
                f"the Spark session of run {self.id} has ended, as one that was started for a run does with it: pass "
                "another one with spark=…, or ask for the DataFrame while the run lasts"
            )
        self.is_lent |= spark is None
        return Frames(self, self._host, spark)

    # -- acting -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Ends the input; rows that were read are still processed and committed. Use `wait` to wait for that."""
        if not self._manager.ended.is_set():
            self._feeds.finish(self._manager.finish)

    def checkpoint(self, operator: str | None = None) -> None:
        """Asks for a checkpoint now, of one operator or of all."""
        self._manager.checkpoint(operator)

    def savepoint(self, timeout: float = 120.0) -> int:
        """Takes a savepoint: stores the state of the whole query, until it is disposed of; returns its number.

        It includes all rows read before the call. Raises EnvironmentFault if it takes too long, or the run is over.
        """
        answer = self._archivist.request(savepoint=True)
        return answer_of(answer, timeout, "savepoint", self._archivist.waits_for).id

    def state(self, operator: str, timeout: float = 30.0) -> StateView:
        """Returns the state of an operator, all of it after one epoch, a little later than now.

        Raises EnvironmentFault if it takes too long, or the run is over.
        """
        return StateView.of(operator, self.read_state(operator, timeout))

    def read_state(self, operator: str, timeout: float = 30.0) -> CutComplete:
        """Returns the state of an operator like `state`, as the parts of its instances, which are not put together."""
        if operator not in self.stateful:
            raise UserError(f"{operator!r} keeps no state; those that do: {', '.join(self.stateful) or 'none'}")
        return answer_of(self._archivist.look(operator), timeout, f"state of {operator}", self._archivist.waits_for)

    @property
    def stateful(self) -> list[str]:
        """The operators that keep state."""
        return [o for o in self.program.graph.order if self.program.graph.kind(o) is Kind.STATEFUL]

    def move(self, operator: str, parts: Mapping[int, SlotSet], first: int | None = None) -> Accepted | Refused:
        """Hands slots over to instances, by index, in one plan that takes effect at epoch `first`, or soon."""
        return self._manager.move(operator, parts, first)

    def migrate(
        self,
        operator: str | Mapping[str, Target],
        target: Target | None = None,
        strategy: str | None = None,
        *,
        batch: int | None = None,
        gap: float | str | None = None,
        gap_epochs: int | None = None,
        prepare: bool | None = None,
        vertical: bool | None = None,
        at: float | str | None = None,
        epoch: int | None = None,
    ) -> MigrationHandle:
        """Moves the slots of an operator, or of several together, to a target, in steps.

        A target is an `Assignment`, a number of instances, or slots by instance. The run's option `migration` has the
        defaults. It begins at once, or `at` so many seconds of the run, or so that its first step takes effect at an
        `epoch`. Each step begins when the one before has taken effect, and after a gap, if any.
        """
        if isinstance(operator, str):
            if target is None:
                raise UserError(f"migrate {operator!r} to what? Give a number of instances, or slots by instance")
            operator = {operator: target}
        chosen = {"strategy": strategy, "batch": batch, "gap": gap, "gap_epochs": gap_epochs}
        chosen |= {"prepare": prepare, "vertical": vertical}
        return self._handle(self._requests.migrate(self.events.now, operator, chosen, at, epoch))

    def migrate_stream(self, operator: str, rows: Any) -> MigrationHandle:
        """Moves slots to instances by a stream of rows (time or epoch, slot, instance), each at its time.

        Rows are a list of mappings, an Arrow table, a CSV or Parquet file, or a Spark DataFrame.
        """
        return self._handle(self._requests.follow(self.events.now, operator, rows))

    def handover(self, instance: str) -> MigrationHandle:
        """Hands all slots of an instance (`counter[1]`) over to a new one on another node."""
        return self._handle(self._requests.hand_over(self.events.now, instance))

    def _handle(self, migrations: list[Migration]) -> MigrationHandle:
        return MigrationHandle(self._manager, self._steering, self._steering.migrate(migrations))

    def migrations(self) -> tuple[MigrationProgress, ...]:
        """The progress of all migrations, oldest first, including those of scaling and draining."""
        return self._steering.progress()

    def scale(self, operator: str, parallelism: int) -> None:
        """Scales an operator to `parallelism` instances, in the background, as if a policy had decided it."""
        _check_parallelism(self.program, operator, parallelism)
        self._steering.scale(operator, parallelism)

    def balance(self, operator: str) -> None:
        """Balances the load of an operator's instances by the settings, in the background."""
        self._steering.balance(operator)

    def drain(self, node: str) -> None:
        """Moves everything on a node elsewhere and returns its VM, in the background."""
        if node not in self.nodes:
            raise UserError(f"there is no live node {node!r}; there are {', '.join(self.nodes)}")
        self._steering.drain(node)

    def kill(self, target: str) -> None:
        """Kills node processes with `kill -9`: of a node, of an instance, or all of an operator."""
        for name in self._nodes_of(target):
            self._manager.killed(name)
            self.signal(name, signal.SIGKILL)

    def signal(self, node: str, number: int) -> None:
        """Sends a signal to a node's process."""
        process = self._manager.nodes[node].process
        if not process.is_local:
            raise UserError(f"node {node} runs on another host; from here only local processes can be signalled")
        os.kill(process.pid, number)

    def _nodes_of(self, target: str) -> list[str]:
        placement = self.placement
        if target in self._manager.nodes:
            return [target]
        found = [node for i, node in placement.items() if target in (i, i.partition("[")[0])]
        if not found:
            raise UserError(f"there is no node, instance or operator {target!r}; instances: {', '.join(placement)}")
        return list(dict.fromkeys(found))

    # -- ending -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends everything that the run has started, at once; its status and results can still be read.

        With storage, its progress is stored, so that another run can continue from there.
        """
        with uninterrupted(), self._stopping:
            self._end()
            self._host.close()
            live_runs.leave(self)
            atexit.unregister(self.stop)

    def _end(self) -> None:
        """Ends everything except the session, once."""
        if self._is_ended:
            return
        self._is_ended = True
        if self._dashboard is not None:
            self._dashboard.close()
        self._logs.ends()
        self._listed.delist()
        if self._metrics is not None:
            self._metrics.close()
        self._answers.close()
        self._feeds.close()
        self._steering.close()
        self._archivist.close()
        self._publisher.close()
        self._manager.close()
        self._fleet.end()
        self._manager.close_port()
        _remove(record.directory for record in self._manager.nodes.values() if record.process.is_local)
        if self._push is not None:
            self._manager.record.sample(self.status())
            self._push.close(self._steering.facts())

    def stop_when_over(self) -> None:
        """Stops the run in the background when its input has ended or it has failed; returns at once.

        The session ends too, if it is the run's own and not lent.
        """
        threading.Thread(target=self._stop_when_over, name="seep end", daemon=True).start()

    def _stop_when_over(self) -> None:
        with suppress(SeepError):  # the reader of the output gets the error
            self.wait()
        if not self.is_lent:
            self.stop()
            return
        with self._stopping:
            self._end()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _check(host: Host, nodes: int) -> None:
    """Checks a session before nodes are started in it; a new local session with enough task slots needs no check."""
    if not (host.own and host.is_local) or capacity(host.context).slots < nodes:
        raise_first(of_session(host.context, nodes))


def _program(
    query: Query | Program, parallelism: Mapping[str, int] | None, options: RunOptions, rate: Rate | None
) -> Program:
    if isinstance(query, Program):
        if parallelism or rate:
            raise UserError("the query is compiled already, so give its parallelism and rate to query.compile(…)")
        return query
    resume = resume_of(options, query.name)
    return query.compile(parallelism=parallelism or {}, epoch_seconds=options.epoch, rate=rate, resume=resume)


def _options(given: Mapping[str, Any]) -> RunOptions:
    known = [each.name for each in fields(RunOptions)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UserError(f"launch does not know the option {unknown[0]!r}; it knows {', '.join(known)}")
    served = {"metrics": metrics_settings(given.get("metrics"))}
    return RunOptions(**{**given, **served, "dashboard": dashboard_settings(given.get("dashboard"))})


def _security(options: RunOptions, host: str) -> Security:
    if options.tls is False:
        return Security.open()
    return Security.with_tls(host) if options.tls is True else Security.with_files(*options.tls)


def _tls(security: Security) -> PemFiles | None:
    return PemFiles(security.certificate, security.key) if security.certificate and security.key else None


def _steward_settings(options: RunOptions) -> StewardSettings:
    return StewardSettings(
        scaling=options.scaling,
        migration=options.migration,
        balance=options.balance,
        backup=options.backup,
        checkpoint=options.checkpoint,
        epoch=options.epoch,
        heartbeat=options.heartbeat,
    )


def _instances(program: Program) -> int:
    return sum(program.parallelism.get(operator, 1) for operator in program.graph.order)


def _most_instances(program: Program) -> dict[str, int]:
    """Returns the most instances that each operator can have: one per slot."""
    return {name: 1 << operator.slot_bits for name, operator in program.graph.operators.items()}


def _check_parallelism(program: Program, operator: str, parallelism: int) -> None:
    most = _most_instances(program)
    if operator not in most:
        raise UserError(f"there is no operator {operator!r}; there are {', '.join(most)}")
    if not 1 <= parallelism <= most[operator]:
        raise UserError(f"operator {operator!r} cannot have {parallelism} instances; choose 1 to {most[operator]}")


def _placement(program: Program, nodes: list[str]) -> dict[InstanceId, str]:
    """Spreads the instances over the nodes; instances on one node are neighbours in the dataflow."""
    instances = [InstanceId(o, i) for o in program.graph.order for i in range(program.parallelism.get(o, 1))]
    return {instance: nodes[at * len(nodes) // len(instances)] for at, instance in enumerate(instances)}


def _remove(directories: Iterable[str]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
