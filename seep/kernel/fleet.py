"""The VMs of a world: the pool requests them, a provider starts them, and nodes start on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, assert_never

from primitives.errors import InternalError
from primitives.event import Event
from seep.kernel.kernel import Kernel
from vmpool.actions import Action, CancelOrder, OrderNodes, Start, Stop
from vmpool.pool import Pool
from vmpool.provider import Machine


class RequestOutcome(NamedTuple):
    """The result of a request to provider or cluster, and the number of steps until it comes."""

    steps: int
    failure: str = ""  #: reason of the failure; empty if it succeeds
    again: bool = True  #: whether a retry may succeed


class CloudBehaviour(Protocol):
    """The behaviour of provider and cluster."""

    def start(self) -> RequestOutcome:
        """The result of a request to start a VM."""
        ...

    def stop(self) -> RequestOutcome:
        """The result of a request to end a VM."""
        ...

    def order(self) -> RequestOutcome:
        """The result of a request to start nodes on a VM."""
        ...

    def boot(self) -> int:
        """Returns the number of steps until an ordered node joins."""
        ...

    def tries_again(self) -> bool:
        """Whether a node replaces one that is lost, on the same VM."""
        ...


class KernelFleet:
    """Carries out the pool's actions and reports their results. There is one for each life of a query."""

    def __init__(
        self,
        kernel: Kernel,
        pool: Pool,
        outside: CloudBehaviour,
        clock: Callable[[], float],
        tell: Callable[[Event], None],
    ) -> None:
        self._kernel, self.pool, self._outside = kernel, pool, outside
        self._clock, self._tell, self._life = clock, tell, kernel.lives
        self._ordered = 0
        self._joined = 0
        self._is_filling = False
        self.wanted = 0  #: free nodes that plans wait for
        #: VM -> whether the provider has started it; without VMs that have failed or been stopped
        self.there: dict[str, bool] = {}
        #: orders that have not ended -> their VM
        self._orders: dict[str, str] = {}
        #: node -> its order
        self._order_of: dict[str, str] = {}

    def fill(self, nodes: int) -> None:
        """Starts VMs for `nodes` nodes at once, as a launch does, which waits for them."""
        self._is_filling = True
        self.pool.want(nodes)
        while len(self.pool.warm(frozenset())) < nodes:
            self.step()
        self.pool.want(0)
        self._is_filling = False

    def step(self) -> None:
        """Makes the pool take a step."""
        for action in self.pool.step(self._kernel.manager.used_nodes(), self._clock()):
            self._carry_out(action)

    # -- used by the steward ------------------------------------------------------------------------------------------

    def available(self) -> list[str]:
        """Returns warm nodes that new instances may take."""
        return self.pool.available(self._kernel.manager.used_nodes())

    def want(self, count: int) -> None:
        """Sets the number of free nodes that are needed now, beyond the reserve."""
        self.wanted = count
        self.pool.want(count)

    def leaving(self, node: str) -> None:
        """Marks a node as leaving; its VM is stopped when nothing is left on it."""
        if (vm := self.pool.vm_of(node)) is not None:
            self.pool.leaving(vm, self._clock())

    # -- faults -------------------------------------------------------------------------------------------------------

    def node_lost(self, node: str) -> None:
        """A node was given up; another may start in its place."""
        order = self._order_of.pop(node, None)
        self.pool.node_lost(node, self._clock())
        if order is None or order not in self._orders:
            return
        if self._outside.tries_again():
            self._after(self._outside.boot(), lambda: self._join(order))
        else:
            del self._orders[order]
            self._after(1, lambda: self.pool.order_ended(order, "its node is lost", self._clock()))

    def lose(self, vm: str) -> None:
        """Reports to the pool that the provider has ended a VM."""
        self.pool.lost([vm], self._clock())

    def check(self) -> None:
        """Raises InternalError if an ordered VM is neither there nor stopped, lost, or refused."""
        counts = self.pool.counts(self._kernel.manager.used_nodes())
        if sum(counts.values()) != len(self.there):
            raise InternalError(f"the pool counts {counts}, and the provider has {self.there}")

    # -- the pool's actions -------------------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(name):
                self._start(name)
            case OrderNodes(name, count):
                self._order(name, count)
            case CancelOrder(order):
                self._cancel(order)
            case Stop(machine):
                self._stop(machine)
            case Event():
                self._tell(action)
            case _:
                assert_never(action)

    def _start(self, name: str) -> None:
        if name in self.there:
            raise InternalError(f"{name} is ordered a second time")
        self.there[name] = False
        outcome = RequestOutcome(0) if self._is_filling else self._outside.start()

        def over() -> None:
            if outcome.failure:
                del self.there[name]
                again = outcome.again or not any(self.there.values())  # else the query would never get VMs
                self.pool.start_failed(name, outcome.failure, again, self._clock())
            else:
                self.there[name] = True
                self.pool.started(Machine(name, f"id-{name}"), self._clock())

        self._after(outcome.steps, over)

    def _order(self, vm: str, count: int) -> None:
        outcome = RequestOutcome(0) if self._is_filling else self._outside.order()

        def over() -> None:
            if outcome.failure:
                self.pool.nodes_refused(vm, outcome.failure, self._clock())
                return
            fresh = [f"order-{self._ordered + i}" for i in range(count)]
            self._ordered += count
            self._orders |= dict.fromkeys(fresh, vm)
            self.pool.nodes_ordered(vm, fresh)
            for order in fresh:
                self._after(0 if self._is_filling else self._outside.boot(), partial(self._join, order))

        self._after(outcome.steps, over)

    def _join(self, order: str) -> None:
        if order not in self._orders:
            return
        self._joined += 1
        node = f"n{self._life}-{self._joined}" if self._life else f"n{self._joined}"
        self._order_of[node] = order
        self._kernel.join(node, self._orders[order])
        self.pool.joined(node, order, None, self._clock())

    def _cancel(self, order: str) -> None:
        """Ends the node of an order, which is noticed a little later."""
        self._orders.pop(order, None)
        for node in [node for node, its in self._order_of.items() if its == order]:
            del self._order_of[node]
            self._kernel.end(node)
            self._after(2, partial(self._gone, node))

    def _gone(self, node: str) -> None:
        self._kernel.give_up(node)

    def _stop(self, machine: Machine) -> None:
        outcome = self._outside.stop()

        def over() -> None:
            if outcome.failure:
                self.pool.stop_failed(machine.name, outcome.failure, self._clock())
            else:
                self.there.pop(machine.name, None)
                self.pool.stopped(machine.name, self._clock())

        self._after(outcome.steps, over)

    def _after(self, steps: int, action: Callable[[], None]) -> None:
        """Schedules an action, which is dropped if this life of the query ends before."""
        if steps == 0:
            action()
            return

        def then() -> None:
            if self._life == self._kernel.lives:
                action()

        self._kernel.at(self._kernel.now + steps, then)
