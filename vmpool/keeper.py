"""PoolKeeper: the pool's shell, with threads and a clock.

It carries out the pool's actions and reports their results.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence, Set
from typing import Any

from vmpool.actions import Action, CancelOrder, OrderNodes, Start, Stop
from vmpool.events import PoolEvent, ProviderFailed
from vmpool.pool import Pool
from vmpool.provider import Machine, Provider, ProviderError
from vmpool.vm import VmState


class PoolKeeper:
    """Keeps a pool filled from a provider, and orders nodes on its VMs.

    `order(n)` makes Spark run n more nodes and returns their orders, `cancel(order)` ends one, `used()` returns the
    nodes that must not be stopped, `tell(note)` gets messages for people. They are called without the keeper's lock, so
    they may take locks of their own. Every method may be called on any thread, and returns at once, except `close`.
    """

    def __init__(
        self,
        pool: Pool,
        provider: Provider,
        *,
        order: Callable[[int], Sequence[str]],
        cancel: Callable[[str], None],
        used: Callable[[], Set[str]],
        tell: Callable[[PoolEvent], None],
        clock: Callable[[], float] = time.monotonic,
        every: float = 0.1,
        poll: float = 1.0,
    ) -> None:
        self._pool, self._provider, self._clock = pool, provider, clock
        self._order, self._cancel, self._used, self._tell = order, cancel, used, tell
        self._every, self._poll = every, poll
        self._lock = threading.Lock()
        self._stepped = threading.Condition(self._lock)
        self._last_used: Set[str] = frozenset()
        self._news, self._ended = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="seep pool", daemon=True),
            threading.Thread(target=self._watch, name="seep pool watch", daemon=True),
        ]

    def start(self) -> PoolKeeper:
        """Begins to fill the pool."""
        for thread in self._threads:
            thread.start()
        return self

    def close(self, timeout: float = 30.0) -> bool:
        """Stops all VMs, used or not, and the provider; returns whether that was done within `timeout` seconds."""
        if self._ended.is_set():
            return self._pool.is_empty
        deadline = time.monotonic() + timeout
        self._told(self._pool.close)
        self._await(lambda: self._pool.is_stopped, deadline)
        reason = _failure(self._provider.close)  # this also interrupts starts in progress
        if reason:
            self._carry_out(ProviderFailed(why=f"{reason}; look for VMs that are left"))
        is_done = self._await(lambda: self._pool.is_empty, deadline)
        self._ended.set()
        self._news.set()
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        return is_done and reason is None

    # -- reports ------------------------------------------------------------------------------------------------------

    def joined(self, node: str, order: str, host: str | None) -> None:
        """Reports that a node has registered, at this address."""
        self._told(self._pool.joined, node, order, host)

    def node_lost(self, node: str) -> None:
        """Reports that a node is lost."""
        self._told(self._pool.node_lost, node)

    def order_ended(self, order: str, reason: str | None) -> None:
        """Reports that Spark does not run an order again."""
        self._told(self._pool.order_ended, order, reason)

    def leaving(self, node: str) -> None:
        """Reports a notice that the VM of a node will be taken away."""
        with self._lock:
            name = self._pool.vm_of(node)
        if name:
            self._told(self._pool.leaving, name)

    def want(self, count: int) -> None:
        """Sets the number of free nodes that a plan, or the launch, needs now; 0 when it has them."""
        self._told(lambda _: self._pool.want(count))

    # -- questions ----------------------------------------------------------------------------------------------------

    def warm(self) -> list[str]:
        """Returns free nodes, for recovery and for the launch."""
        used = self._used()
        with self._lock:
            return self._pool.warm(used)

    def available(self) -> list[str]:
        """Returns free nodes that scale-out may take; `used` must contain a taken one within a second."""
        used = self._used()
        with self._lock:
            return self._pool.available(used)

    def vm_of(self, node: str) -> str | None:
        """Returns the VM of a node."""
        with self._lock:
            return self._pool.vm_of(node)

    def vm_seconds(self) -> dict[str, float]:
        """Returns the cost of each VM so far."""
        with self._lock:
            return self._pool.vm_seconds(self._clock())

    def counts(self) -> dict[VmState, int]:
        """Returns the number of VMs in each state."""
        used = self._used()
        with self._lock:
            return self._pool.counts(used)

    # -- the keeper's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended.is_set():
            self._news.clear()
            self._step()
            self._news.wait(self._every)

    def _step(self) -> None:
        with contextlib.suppress(Exception):  # a failed run does not answer, and its VMs must be stopped all the same
            self._last_used = self._used()
        used = self._last_used
        with self._lock:
            actions = self._pool.step(used, self._clock())
            self._stepped.notify_all()
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(name):
                self._on_a_thread(self._start_vm, name)
            case Stop(machine):
                self._on_a_thread(self._stop_vm, machine)
            case OrderNodes(name, count):
                self._order_nodes(name, count)
            case CancelOrder(order):
                with contextlib.suppress(Exception):  # if Spark does not answer, its nodes end with it
                    self._cancel(order)
            case _:
                with contextlib.suppress(Exception):  # works on without a listener
                    self._tell(action)

    def _order_nodes(self, name: str, count: int) -> None:
        try:
            orders = self._order(count)
        except Exception as reason:
            self._told(self._pool.nodes_refused, name, _in_words(reason))
            return
        self._told(lambda _: self._pool.nodes_ordered(name, orders))
        if len(orders) < count:
            self._told(self._pool.nodes_refused, name, f"Spark took {len(orders)} of {count} orders")

    # -- threads that wait for the provider ---------------------------------------------------------------------------

    def _on_a_thread(self, call: Callable[[Any], None], subject: Any) -> None:
        """Runs each call on its own thread, so that a slow one delays neither others nor the program's end."""
        threading.Thread(target=call, args=(subject,), name="seep pool provider", daemon=True).start()

    def _start_vm(self, name: str) -> None:
        try:
            machine = self._provider.start(name)
            _check_name(machine, name)
        except Exception as reason:
            self._told(self._pool.start_failed, name, _in_words(reason), getattr(reason, "again", True))
            return
        self._told(self._pool.started, machine)
        if self._ended.is_set():
            self._stop_vm(machine)

    def _stop_vm(self, machine: Machine) -> None:
        if reason := _failure(lambda: self._provider.stop(machine)):
            self._told(self._pool.stop_failed, machine.name, reason)
        else:
            self._told(self._pool.stopped, machine.name)

    def _watch(self) -> None:
        while not self._ended.wait(self._poll):
            with self._lock:
                machines = self._pool.machines()
            try:
                lost = set(self._provider.lost(machines))
            except Exception as reason:
                words = _in_words(reason)
                self._told(lambda _, words=words: self._pool.unheard(words))
            else:
                self._told(self._pool.lost, lost)

    # -- help ---------------------------------------------------------------------------------------------------------

    def _told(self, tell: Callable[..., None], *what: Any) -> None:
        """Reports something to the pool, with the present time."""
        with self._lock:
            tell(*what, self._clock())
        self._news.set()

    def _await(self, holds: Callable[[], bool], deadline: float) -> bool:
        with self._lock:
            return self._stepped.wait_for(holds, max(0.0, deadline - time.monotonic()))


def _check_name(machine: Machine, name: str) -> None:
    if machine.name != name:
        raise ProviderError(f"the provider has started {machine.name!r}, and {name!r} was ordered")


def _failure(call: Callable[[], None]) -> str | None:
    """Returns the reason why a call of the provider failed; None if it did not fail."""
    try:
        call()
    except Exception as reason:
        return _in_words(reason)
    return None


def _in_words(reason: Exception) -> str:
    """Returns the error in words. Providers raise ProviderError; any other type is a bug of theirs and is named."""
    return str(reason) if isinstance(reason, ProviderError) else f"{type(reason).__name__}: {reason}"
