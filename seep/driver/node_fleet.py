"""The node fleet: the nodes of a run, from the order for a VM to the end of the last one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Set
from functools import partial
from typing import Any

from primitives.errors import EnvironmentFault
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.driver.node_register import NodeRecord
from seep.driver.options import RunOptions
from seep.reports import figures
from seep.spark.fleet import Fleet, OrderEnded
from seep.spark.order import NodeOrder
from seep.spark.session import Host
from vmpool.events import PoolEvent
from vmpool.keeper import PoolKeeper
from vmpool.pool import Pool
from vmpool.registry import make_provider

#: Seconds in which nodes must end by themselves, and VMs must be returned.
_GRACE, _GIVE_BACK = 3.0, 30.0


class NodeFleet(RunListener):
    """Connects the manager's process, the fleet (nodes as Spark tasks) and the pool (VMs on which they run)."""

    def __init__(
        self,
        process: ManagerProcess,
        options: RunOptions,
        host: Host,
        main: Callable[[NodeOrder], None],
        task: Any,
        run: str,
    ) -> None:
        self._process, self._options = process, options
        self._launched = self._ending = self._giving_back = False
        pool = options.whole_pool
        provider = make_provider(pool, master=str(host.context.master), run=run)
        self._fleet = Fleet(host.context, main, task, query=process.program.name, on_ended=self._ended)
        self.pool = PoolKeeper(
            Pool(pool),
            provider,
            order=self._fleet.start,
            cancel=self._fleet.cancel,
            used=self._used_nodes,
            tell=self._tell,
        )
        self._news = threading.Event()  #: a node has joined, or the run is over
        process.subscribe(self)

    # -- its time -----------------------------------------------------------------------------------------------------

    def gather(self, nodes: int, tell: Callable[[str], None]) -> list[str]:
        """Starts VMs until `nodes` nodes have joined, and tells how many have; returns the nodes, oldest first."""
        tell(f"starting {figures.of(nodes, 'node')}")
        self.pool.want(max(0, nodes - self._options.whole_pool.reserve))  # the launch may use the reserve, too
        self.pool.start()
        deadline, known = time.monotonic() + self._options.start_timeout, 0
        while len(joined := self._process.staying_nodes()) < nodes:
            if len(joined) > known:
                known = len(joined)
                tell(f"{known} of {figures.of(nodes, 'node')} joined")
            if self._process.failure:
                raise self._process.failure
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"only {len(joined)} of {nodes} nodes have started within {self._options.start_timeout:.0f} s: "
                    "the cluster is busy or slow; free some of its task slots, ask for fewer with nodes=…, "
                    "or give it more time with start_timeout=…"
                )
            self._news.wait(max(0.0, deadline - time.monotonic()))
            self._news.clear()
        tell(f"{nodes} of {figures.of(nodes, 'node')} joined")
        return joined[:nodes]

    def launched(self) -> None:
        """Keeps the pool warm from now on, as the query runs on the gathered nodes."""
        self._launched = True
        self.pool.want(0)

    def end(self) -> None:
        """Waits for the end of the nodes, which have been told to end; then kills the rest, and returns the VMs."""
        self._ending = True
        deadline = time.monotonic() + _GRACE
        while self._lives_any() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._fleet.stop()
        self._giving_back = True
        self.pool.close(_GIVE_BACK)

    def _lives_any(self) -> bool:
        """Whether a node still exists, including those that register only now."""
        return any(record.process.alive() for record in self._process.nodes.values())

    # -- queries and events of the pool -------------------------------------------------------------------------------

    def _used_nodes(self) -> Set[str]:
        """Returns the nodes that the pool must keep; none before the launch and after the end."""
        if self._ending:
            return frozenset()
        return self._process.used_nodes()

    def _tell(self, event: PoolEvent) -> None:
        if not self._ending or self._giving_back:  # the end of nodes is not an event then
            self._process.events.add(event)

    # -- notices of the event loop ------------------------------------------------------------------------------------

    def registered(self, record: NodeRecord) -> None:
        self._fleet.registered(record.order, record.process)

    def joined(self, record: NodeRecord) -> None:
        self.pool.joined(record.name, record.order, record.vm)
        self._news.set()

    def lost(self, record: NodeRecord, silent: bool) -> None:
        """Cancels the order of a silent node, which may still exist and occupy a task slot."""
        self.pool.node_lost(record.name)
        if silent:
            self._process.chores.put(partial(self._fleet.cancel, record.order))

    def over(self) -> None:
        self._news.set()

    # -- notices of Spark ---------------------------------------------------------------------------------------------

    def _ended(self, ended: OrderEnded) -> None:
        """Handles the end of a node's task, which Spark does not run again."""
        if self._ending:
            return
        self._process.task_ended(ended.order, ended.reason or "its task is over")
        self.pool.order_ended(ended.order, ended.reason)
        if not self._launched and not self._process.knows(ended.order):
            self._process.fail(EnvironmentFault(f"a node could not be started: {ended.reason or 'its task ended'}"))
