"""The fleet: nodes as Spark jobs of one task each, started, watched, cancelled and stopped from the driver.

One job per node, never one stage for all: the loss of one then says nothing of the others, and nodes come and go. On a
cluster Spark runs a task again that has failed, or a second time at once (speculation); each is a new node with the
order's id and an attempt above 0.
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

#: Set in the environment of nodes, and of no other tasks. Spark keeps a Python daemon for each environment, and ends
#: it with all its processes when a task of it is interrupted at the wrong moment, as those of streaming queries are.
_OWN_DAEMON = "SEEP_NODE"
#: Held while that is so: the environment belongs to the session.
_environment = threading.Lock()
#: Seconds between two looks at what is left, while stopping.
_POLL = 0.01
#: More attempts than Spark makes of any task.
_MANY = 1000
#: Orders that have ended and are still known.
_ENDED = 100


class OrderEnded(NamedTuple):
    """An order is over: Spark does not run it again."""

    order: str
    reason: str | None  #: None: its main function returned


@dataclass(slots=True)
class _Job:
    thread: threading.Thread
    processes: list[ProcessId] = field(default_factory=list)
    cancelled: bool = False
    ended: OrderEnded | None = None


class Fleet:
    """The nodes of one run. `main` runs in each, with a `NodeOrder`; a node is over, process and all, when it returns.

    `on_ended` is called about a tenth of a second after an order is over, on a thread of the fleet.
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
        self._ordered = 0  #: orders so far
        self._stopped = False
        self._lock = threading.Lock()

    def start(self, count: int = 1) -> tuple[str, ...]:
        """Orders so many nodes more (none after `stop`); they come when Spark has task slots for them."""
        with self._lock:
            return tuple(self._start() for _ in range(count if not self._stopped else 0))

    def registered(self, order: str, process: ProcessId) -> None:
        """A node has said which process it is; on this host the fleet can end it without waiting for Spark."""
        with self._lock:
            job = self._jobs.get(order)
            if job is not None:
                job.processes.append(process)
        if job is None or job.cancelled:
            process.kill()

    def cancel(self, order: str) -> None:
        """Ends the order and its node, stopped or not: at once on this host if it has registered, else in 2 to 4 s."""
        with self._lock:
            job = self._jobs.get(order)
            if job is None:  # it ended long ago
                return
            job.cancelled = True
        if job.ended is None and self._context._jsc is not None:  # a session that was stopped has ended all its jobs
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group(order))
        for process in job.processes:
            process.kill()

    def check(self) -> None:
        """EnvironmentFault if an order is over that nobody cancelled; for while all nodes are still to come."""
        with self._lock:
            over = [job.ended for job in self._jobs.values() if job.ended and not job.cancelled]
        for ended in over:
            raise EnvironmentFault(f"node {ended.order} did not start: {ended.reason or 'it ended by itself'}")

    def failures(self, order: str) -> tuple[str, ...]:
        """Why attempts of this order have failed so far, in turn; the last one may have been followed by another."""
        errors = [task.errorMessage() for task in self._tasks(order)]
        return tuple(reason_of(error.get()) for error in errors if error.isDefined())

    def stop(self, timeout: float = 10.0) -> tuple[str, ...]:
        """Ends all and waits until no node is left; the orders of which one still is after `timeout`."""
        with self._lock:
            self._stopped = True
            orders: Iterable[str] = tuple(self._jobs)
        for order in orders:
            self.cancel(order)
        deadline = time.monotonic() + timeout
        while (left := tuple(filter(self._lives, orders))) and time.monotonic() < deadline:
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
        """So many others have ended since that nobody asks for them any more."""
        over = [order for order, job in self._jobs.items() if job.ended]
        for order in over[:-_ENDED]:
            if not self._lives(order):
                del self._jobs[order]

    def _watch(self, order: str) -> None:
        """Lives as long as the job; Spark's call returns when that is over."""
        job = self._jobs[order]
        try:
            self._run(order)
            reason = None
        except Exception as error:
            reason = CANCELLED if job.cancelled else reason_of_exception(error)
        job.ended = OrderEnded(order, reason)
        self._on_ended(job.ended)

    def _run(self, order: str) -> None:
        # Never interrupted: where a task is just starting its worker then, Spark takes its Python daemon for dead, and
        # ends it together with all other nodes of that executor.
        self._context.setJobGroup(self._group(order), self._description, interruptOnCancel=False)
        task = node_task(self._shipment, self._payload, order)
        job = self._context.parallelize([None], 1).mapPartitions(task)
        with _own_daemon(self._context):
            made = job._jrdd  # now, with a copy of the environment
        # Not `collect`: that brings results through a port of its own, and there are none. Whoever spoke to that port
        # by mistake, as links do that look for a node that is gone, would end the thread there with an error of Java's.
        made.count()

    def _lives(self, order: str) -> bool:
        """Whether something is left of it; the job of a cancelled order is over before its task is."""
        job = self._jobs[order]
        return job.thread.is_alive() or any(process.alive() for process in job.processes) or self._runs(order)

    def _runs(self, order: str) -> bool:
        wanted = self._jobs[order].ended
        return bool(wanted and wanted.reason == CANCELLED) and any(
            task.status() == "RUNNING" for task in self._tasks(order)
        )

    def _tasks(self, order: str) -> list[Any]:
        """What Spark knows of the attempts of an order's one task; nothing once it was stopped."""
        if self._context._jsc is None:
            return []
        status, store = self._context.statusTracker(), self._context._jsc.sc().statusStore()
        jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(self._group(order))]
        stages = [stage for job in jobs if job for stage in job.stageIds]
        found = [store.taskList(stage, 0, _MANY) for stage in stages]
        return [tasks.apply(number) for tasks in found for number in range(tasks.size())]

    def _group(self, order: str) -> str:
        """Spark's name for the order's job."""
        return f"seep {order}"


@contextmanager
def _own_daemon(context: SparkContext) -> Iterator[None]:
    """Jobs that are made in it are of nodes. The session's environment stays as it is: others may be reading it."""
    with _environment:
        shared, context.environment = context.environment, context.environment | {_OWN_DAEMON: "1"}
        try:
            yield
        finally:
            context.environment = shared
