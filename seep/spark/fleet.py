"""The fleet: nodes as Spark jobs of one task each, started, watched, cancelled and stopped from the driver.

Each node has its own job, not one stage for all, so that the loss of a node does not affect others, and nodes can be
added and removed. On a cluster, Spark runs a failed task again, or runs a second copy (speculation); each of these is a
new node with the order's id and an attempt above 0.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pyspark import InheritableThread, SparkContext

from primitives.errors import EnvironmentFault
from seep.channels.process import ProcessId
from seep.spark.bootstrap import node_task
from seep.spark.order import NodeOrder, carry_out
from seep.spark.reason import CANCELLED, reason_of, reason_of_exception
from seep.spark.shipping import is_local, loose_modules, packed, ship, travel_by_value

#: Set in the environment of nodes only. Spark has a Python daemon for each environment, and ends it with all its
#: processes when one of its tasks is interrupted at the wrong moment, which happens to tasks of streaming queries.
_OWN_DAEMON = "SEEP_NODE"
#: Held while the variable is set, because the environment belongs to the session.
_environment = threading.Lock()
#: Seconds between two checks for remaining nodes, while stopping.
_POLL = 0.01
#: More attempts than Spark makes for any task.
_MANY = 1000
#: The number of ended orders that are remembered.
_ENDED = 100


class OrderEnded(NamedTuple):
    """An order has ended: Spark does not run it again."""

    order: str
    reason: str | None  #: None: its main function returned


@dataclass(slots=True)
class _Job:
    thread: threading.Thread
    processes: list[ProcessId] = field(default_factory=list)
    cancelled: bool = False
    ended: OrderEnded | None = None


class Fleet:
    """The nodes of one run. Each runs `main` with a `NodeOrder`; when that returns, the node and its process end.

    `on_ended` is called about a tenth of a second after an order has ended, on a thread of the fleet.
    """

    def __init__(
        self,
        context: SparkContext,
        main: Callable[[NodeOrder], None],
        settings: Any,
        *,
        query: str,
        on_ended: Callable[[OrderEnded], None],
    ) -> None:
        travel_by_value()
        self._context, self._on_ended = context, on_ended
        self._description = f"seep node of {query}"
        self._shipment = ship(context)
        self._payload = packed(partial(carry_out, main, settings), () if is_local(context) else loose_modules())
        self._id = secrets.token_hex(3)
        self._jobs: dict[str, _Job] = {}
        self._ordered = 0  #: number of orders so far
        self._stopped = False
        self._lock = threading.Lock()

    def start(self, count: int = 1) -> tuple[str, ...]:
        """Orders `count` more nodes (none after `stop`); they start when Spark has task slots for them."""
        with self._lock:
            return tuple(self._start() for _ in range(count if not self._stopped else 0))

    def registered(self, order: str, process: ProcessId) -> None:
        """Records the process of a node; on this host, the fleet can end it without waiting for Spark."""
        with self._lock:
            job = self._jobs.get(order)
            if job is not None:
                job.processes.append(process)
        if job is None or job.cancelled:
            process.kill()

    def cancel(self, order: str) -> None:
        """Ends the order and its node, even a stopped one: on this host at once if registered, else in 2 to 4 s."""
        with self._lock:
            job = self._jobs.get(order)
            if job is None:  # it ended, and is forgotten
                return
            job.cancelled = True
        if job.ended is None and self._context._jsc is not None:  # a stopped session has ended all its jobs
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group(order))
        for process in job.processes:
            process.kill()

    def check(self) -> None:
        """Raises EnvironmentFault if an order has ended that was not cancelled; used while the first nodes start."""
        with self._lock:
            over = [job.ended for job in self._jobs.values() if job.ended and not job.cancelled]
        for ended in over:
            raise EnvironmentFault(f"node {ended.order} did not start: {ended.reason or 'it ended by itself'}")

    def failures(self, order: str) -> tuple[str, ...]:
        """Returns the reasons why attempts of this order have failed so far, in order."""
        errors = [task.errorMessage() for task in self._tasks(order)]
        return tuple(reason_of(error.get()) for error in errors if error.isDefined())

    def stop(self, timeout: float = 10.0) -> tuple[str, ...]:
        """Ends all nodes and waits for their end; returns the orders that still have a node after `timeout`."""
        with self._lock:
            self._stopped = True
            orders: Iterable[str] = tuple(self._jobs)
        for order in orders:
            self.cancel(order)
        deadline = time.monotonic() + timeout
        while (left := tuple(filter(self._exists, orders))) and time.monotonic() < deadline:
            orders = left
            time.sleep(_POLL)
        return left

    def _start(self) -> str:
        self._forget_old()
        order = f"{self._id}-{self._ordered}"
        self._ordered += 1
        thread = InheritableThread(target=self._watch, args=(order,), name=f"seep order {order}", daemon=True)
        self._jobs[order] = _Job(thread)
        thread.start()
        return order

    def _forget_old(self) -> None:
        """Forgets orders that ended long ago."""
        over = [order for order, job in self._jobs.items() if job.ended]
        for order in over[:-_ENDED]:
            if not self._exists(order):
                del self._jobs[order]

    def _watch(self, order: str) -> None:
        """Runs the job on this thread; Spark's call returns when the job has ended."""
        job = self._jobs[order]
        try:
            self._run(order)
            reason = None
        except Exception as error:
            reason = CANCELLED if job.cancelled else reason_of_exception(error)
        job.ended = OrderEnded(order, reason)
        self._on_ended(job.ended)

    def _run(self, order: str) -> None:
        # Never interrupted: if a task is starting its worker at that moment, Spark assumes that its Python daemon is
        # dead, and ends it together with all other nodes of that executor.
        self._context.setJobGroup(self._group(order), self._description, interruptOnCancel=False)
        task = node_task(self._shipment, self._payload, order)
        job = self._context.parallelize([None], 1).mapPartitions(task)
        with _own_daemon(self._context):
            made = job._jrdd  # made now, with a copy of the environment
        # Not `collect`: it opens a port for results, of which there are none. A link that looks for a lost node and
        # connects to that port by mistake would end the thread there with a Java error.
        made.count()

    def _exists(self, order: str) -> bool:
        """Whether its job, task or process still exists; the job of a cancelled order ends before its task."""
        job = self._jobs[order]
        return job.thread.is_alive() or any(process.alive() for process in job.processes) or self._runs(order)

    def _runs(self, order: str) -> bool:
        wanted = self._jobs[order].ended
        return bool(wanted and wanted.reason == CANCELLED) and any(
            task.status() == "RUNNING" for task in self._tasks(order)
        )

    def _tasks(self, order: str) -> list[Any]:
        """Returns Spark's data of the attempts of an order's task; nothing after Spark was stopped."""
        if self._context._jsc is None:
            return []
        status, store = self._context.statusTracker(), self._context._jsc.sc().statusStore()
        jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(self._group(order))]
        stages = [stage for job in jobs if job for stage in job.stageIds]
        found = [store.taskList(stage, 0, _MANY) for stage in stages]
        return [tasks.apply(number) for tasks in found for number in range(tasks.size())]

    def _group(self, order: str) -> str:
        """Returns Spark's name for the order's job."""
        return f"seep {order}"


@contextmanager
def _own_daemon(context: SparkContext) -> Iterator[None]:
    """Jobs made in this context are for nodes. It replaces the session's environment, as others may be reading that."""
    with _environment:
        shared, context.environment = context.environment, context.environment | {_OWN_DAEMON: "1"}
        try:
            yield
        finally:
            context.environment = shared
