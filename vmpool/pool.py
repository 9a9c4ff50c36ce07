"""The pool: decides which VMs to order and which to stop, so that a warm one exists when a plan needs it.

A pure state machine. It is told events with their times. `step` compares what exists, or is ordered, with what is
wanted, and returns actions for the difference. So after any failure, the next step corrects it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from functools import partial

from policies.pool_size import adaptive_size
from vmpool.actions import Action, CancelOrder, OrderNodes, Start, Stop
from vmpool.backoff import Backoff
from vmpool.events import (
    PoolEvent,
    PoolExhausted,
    PoolResized,
    ProviderFailed,
    VMLost,
    VMOrdered,
    VMReady,
    VMReleased,
)
from vmpool.provider import Machine
from vmpool.roster import VmRoster
from vmpool.settings import PoolSettings, Sizing
from vmpool.vm import VM, Departure, VmState

#: Seconds for which a VM's nodes are not offered before it is stopped; a node taken just before is in `used` by then.
GRACE = 1.0
#: Number of takings and provisionings that are remembered.
_MEMORY = 64
_COMING = (VmState.ORDERED, VmState.BOOTING)


class Pool:
    """The VMs from their order to their end. `used` always has the nodes that the caller must not lose."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._vms = VmRoster(found=partial(self._new_vm, size=0))
        self._starts = self._new_backoff()
        self._node_orders = self._new_backoff()
        self._numbered = 0
        self._failed_names: list[str] = []  #: tried again, as a VM may exist after all
        self._early: dict[str, list[Callable[[], None]]] = {}  #: order -> early reports of it
        self._unwanted: list[str] = []  #: orders to cancel that belong to no VM
        self._want = 0
        self._has_been_used = False
        self._closing = False
        self._taken: deque[float] = deque(maxlen=_MEMORY)
        self._provisioned: deque[float] = deque(maxlen=_MEMORY)
        self._target = self._least
        self._episodes: set[str] = set()
        self._events: list[PoolEvent] = []  #: events of this step
        self._spent: dict[str, float] = {}

    # -- reports ------------------------------------------------------------------------------------------------------

    def started(self, machine: Machine, now: float) -> None:
        """Reports that the provider has started a VM."""
        for vm in self._vms.named([machine.name]):
            vm.machine = machine
        self._starts.succeeded(now)

    def start_failed(self, name: str, reason: str, again: bool, now: float) -> None:
        """Reports that the provider could not start a VM; with `again` false it is not retried until a change."""
        self._vms.remove(name)
        self._failed_names.append(name)
        if self._starts.failed(now, again=again):
            then = (
                f"the next try is in {self._starts.wait:g} s"
                if again
                else "no VM is ordered until one is given back or a plan needs more"
            )
            self._tell(ProviderFailed(vm=name, why=f"{reason}; {then}"))

    def nodes_ordered(self, name: str, orders: Collection[str]) -> None:
        """Reports that Spark has accepted the orders for nodes of a VM."""
        vm = self._vms.get(name)
        if vm is None or (vm.departure and vm.departure.under_way):
            self._unwanted.extend(orders)
            return
        self._vms.expect(vm, orders)
        for order in orders:
            for tell_again in self._early.pop(order, ()):
                tell_again()

    def nodes_refused(self, name: str, reason: str, now: float) -> None:
        """Reports that Spark has not accepted the orders for nodes of a VM."""
        if vm := self._vms.get(name):
            vm.asked = 0
        self._node_failed(name, reason, now)

    def joined(self, node: str, order: str, host: str | None, now: float) -> None:
        """Reports that a node has registered; its order may not be known yet."""
        vm = self._vms.place(node, order, host, now)
        if vm is None:
            self._early.setdefault(order, []).append(partial(self.joined, node, order, host, now))
            return
        self._node_orders.succeeded(now)
        self._check_ready(vm, now)

    def node_lost(self, node: str, now: float) -> None:
        """Reports that a node is lost; Spark may run its order again."""
        if vm := self._vms.lose(node):
            self._check_lives(vm, f"node {node} is gone", now)

    def order_ended(self, order: str, reason: str | None, now: float) -> None:
        """Reports that Spark will not run an order again, with its node if there was one; it may not be known yet."""
        vm = self._vms.maker(order)
        if vm is None:
            if self._vms.is_asking():
                self._early.setdefault(order, []).append(partial(self.order_ended, order, reason, now))
            return
        why = reason or "it ended by itself"
        for node in [node for node, its in vm.nodes.items() if its == order]:
            del vm.nodes[node]
            self._check_lives(vm, f"node {node} is gone: {why}", now)
        if not vm.orders.pop(order, True) and vm.departure is None:
            self._node_failed(vm.name, why, now)

    def lost(self, names: Iterable[str], now: float) -> None:
        """Reports the provider's answer: VMs that are lost or about to be."""
        self._episodes.discard("unheard")
        for vm in self._vms.named(names):
            self._lose(vm, "the provider says that it is gone", now)

    def unheard(self, reason: str) -> None:
        """Reports that the provider did not answer which VMs are lost."""
        self._once("unheard", True, ProviderFailed(why=f"it does not say which VMs are lost: {reason}"))

    def leaving(self, name: str, now: float) -> None:
        """Reports that a VM will be taken away: it is replaced at once, and stopped when none of its nodes is used."""
        vm = self._vms.get(name)
        if vm and (vm.departure is None or vm.departure.may_stay):
            vm.departure = Departure(now, "the provider takes it back")

    def stopped(self, name: str, now: float) -> None:
        """Reports that the provider has stopped a VM; may be repeated."""
        if vm := self._vms.remove(name):
            self._spent[name] = now - vm.ordered
        self._starts.changed()

    def stop_failed(self, name: str, reason: str, now: float) -> None:
        """Reports that the provider could not stop a VM: it still counts, and is tried again."""
        vm = self._vms.get(name)
        if vm is None or vm.departure is None:
            return
        vm.departure.under_way = False
        if vm.stops.failed(now):
            self._tell(ProviderFailed(vm=name, why=f"{reason}; the next try to stop it is in {vm.stops.wait:g} s"))

    def want(self, count: int) -> None:
        """Sets the number of free nodes that a plan needs now, beyond the reserve; 0 when it has them."""
        if count > self._want:
            self._starts.changed()
        self._want = count

    def close(self, now: float) -> None:
        """Ends the pool: all VMs will be stopped, used or not, and none is ordered."""
        self._closing = True
        for vm in self._vms:
            vm.departure = vm.departure or Departure(now, "the run is over")

    # -- questions ----------------------------------------------------------------------------------------------------

    def warm(self, used: Set[str]) -> list[str]:
        """Returns free nodes, for recovery and for the launch: those on VMs in use first, then by age."""
        return [*self._beside(used), *self._free(self._whole(used))]

    def available(self, used: Set[str]) -> list[str]:
        """Returns free nodes that scale-out may take: all except those of the reserve."""
        whole = self._whole(used)
        return [*self._beside(used), *self._free(whole[: max(0, len(whole) - self._settings.reserve)])]

    def vm_of(self, node: str) -> str | None:
        """Returns the VM of a node."""
        vm = self._vms.vm_with(node)
        return vm.name if vm else None

    def machines(self) -> list[Machine]:
        """Returns the VMs that should be up."""
        return [vm.machine for vm in self._vms if vm.machine and vm.departure is None]

    def counts(self, used: Set[str]) -> dict[VmState, int]:
        """Returns the number of VMs in each state."""
        states = [vm.state(used) for vm in self._vms]
        return {state: states.count(state) for state in VmState}

    def vm_seconds(self, now: float) -> dict[str, float]:
        """Returns the seconds of each VM from its order until it was stopped, or until now; not of unstarted VMs."""
        running = {vm.name: now - vm.ordered for vm in self._vms if vm.machine}
        return self._spent | running

    @property
    def target(self) -> int:
        """The number of warm VMs that the pool keeps when no plan waits."""
        return self._target

    @property
    def is_stopped(self) -> bool:
        """Whether no VM is up; some may be ordered."""
        return not any(vm.machine for vm in self._vms)

    @property
    def is_empty(self) -> bool:
        """Whether no VM exists or is ordered."""
        return len(self._vms) == 0

    # -- the step -----------------------------------------------------------------------------------------------------

    def step(self, used: Set[str], now: float) -> list[Action]:
        """Returns the actions to take now."""
        self._notice_use(used, now)
        self._resize(now)
        if not self._closing:
            self._mark_surplus(used, now)
        actions = [*self._cancellations(), *self._endings(used, now)]
        if not self._closing:
            actions += [*self._refills(used, now), *self._orders_for_nodes(now)]
        events, self._events = self._events, []
        return [*actions, *events]

    def _notice_use(self, used: Set[str], now: float) -> None:
        """Notes newly used VMs; the first use is the launch, which does not show how fast VMs are taken later."""
        taken = [vm for vm in self._vms if vm.uses(used) and not vm.is_used]
        if self._has_been_used:
            self._taken.extend(now for _ in taken)
        self._has_been_used |= bool(taken)
        for vm in self._vms:
            vm.is_used = vm.uses(used)
            if vm.is_used and vm.departure and vm.departure.may_stay:
                vm.departure = None

    def _resize(self, now: float) -> None:
        if self._settings.sizing is Sizing.CONSTANT:
            return
        most = max(self._least, self._settings.max_size)
        before, self._target = self._target, adaptive_size(self._taken, self._provisioning, now, self._least, most)
        if self._target != before:
            self._tell(PoolResized(before=before, after=self._target))

    def _mark_surplus(self, used: Set[str], now: float) -> None:
        """Marks VMs for stopping that have been surplus for long enough."""
        surplus = self._surplus(used)
        for vm in self._vms:
            if vm not in surplus:
                vm.surplus_since = None
            elif vm.surplus_since is None:
                vm.surplus_since = now
            elif now - vm.surplus_since >= self._settings.idle:
                vm.departure = Departure(now, f"it was not needed for {now - vm.surplus_since:.0f} s", may_stay=True)

    def _surplus(self, used: Set[str]) -> list[VM]:
        """Returns surplus warm VMs: the newest, as the oldest are offered first."""
        whole = self._whole(used)
        own = [vm for vm in whole if not vm.is_found]
        count = max(0, len(whole) - self._needed(used))
        return own[max(0, len(own) - count) :]

    def _cancellations(self) -> Iterator[Action]:
        """Cancels orders that belong to no VM; an unknown one may belong to a VM whose orders are being placed."""
        if not self._vms.is_asking():
            self._unwanted.extend(self._early)
            self._early.clear()
        unwanted, self._unwanted = self._unwanted, []
        yield from map(CancelOrder, unwanted)

    def _endings(self, used: Set[str], now: float) -> Iterator[Action]:
        for vm in self._vms:
            if vm.departure and not vm.departure.under_way and self._may_end(vm, vm.departure, used, now):
                yield from self._end(vm, vm.departure, now)

    def _may_end(self, vm: VM, departure: Departure, used: Set[str], now: float) -> bool:
        if not (vm.is_found or vm.machine) or not vm.stops.is_ready(now):
            return False
        return self._closing or not vm.nodes or (not vm.uses(used) and now - departure.since >= GRACE)

    def _end(self, vm: VM, departure: Departure, now: float) -> Iterator[Action]:
        """Stops a VM; first cancels its orders, so that Spark does not run its nodes elsewhere."""
        yield from map(CancelOrder, dict.fromkeys([*vm.nodes.values(), *vm.orders]))
        vm.nodes.clear()
        vm.orders.clear()
        if vm.machine is None:
            self._vms.remove(vm.name)
            return
        if not (departure.is_loss or self._closing or vm.stops.wait):
            self._tell(VMReleased(vm=vm.name, why=departure.why, seconds=now - vm.ordered))
        departure.under_way = True
        yield Stop(vm.machine)

    def _refills(self, used: Set[str], now: float) -> Iterator[Action]:
        """Orders another VM as soon as a warm one is used or lost."""
        coming = [vm for vm in self._vms if vm.state(used) in _COMING]
        missing = max(0, self._needed(used) - len(self._whole(used)) - len(coming))
        self._tell_exhaustion(missing, used)
        if self._starts.is_ready(now):
            for _ in range(min(missing, self._room(self._vms.own()))):
                yield self._order(now)

    def _order(self, now: float) -> Action:
        name = self._failed_names.pop(0) if self._failed_names else self._new_name()
        self._vms.add(self._new_vm(name, now, self._settings.nodes_per_vm))
        self._tell(VMOrdered(vm=name, provider=self._settings.provider))
        return Start(name)

    def _orders_for_nodes(self, now: float) -> Iterator[Action]:
        if not self._node_orders.is_ready(now):
            return
        for vm in self._vms:
            if vm.machine and vm.departure is None and vm.missing:
                yield OrderNodes(vm.name, vm.missing)
                vm.asked += vm.missing

    def _tell_exhaustion(self, missing: int, used: Set[str]) -> None:
        """Reports an exhausted pool, unless VMs that are being stopped make enough room."""
        staying = [vm for vm in self._vms.own() if vm.departure is None]
        is_bound = missing > self._room(staying)
        states = ", ".join(f"{count} {state}" for state, count in self.counts(used).items() if count) or "none"
        exhausted = PoolExhausted(missing=missing, most=self._settings.max_vms or 0, states=states)
        self._once("bound", is_bound, exhausted)

    # -- sizes --------------------------------------------------------------------------------------------------------

    @property
    def _least(self) -> int:
        return max(self._settings.size, self._settings.reserve)

    @property
    def _provisioning(self) -> float:
        """Mean seconds from order to readiness, so far."""
        return sum(self._provisioned) / len(self._provisioned) if self._provisioned else 0.0

    def _needed(self, used: Set[str]) -> int:
        """Returns the wanted number of warm VMs: the target, or what a plan needs besides the reserve."""
        short = max(0, self._want - len(self._beside(used)))
        return max(self._target, self._settings.reserve + math.ceil(short / self._settings.nodes_per_vm))

    def _room(self, there: Collection[VM]) -> int:
        """Returns how many VMs may be added to `there`."""
        most = self._settings.max_vms
        return 10**9 if most is None else max(0, most - len(there))

    # -- VMs and nodes ------------------------------------------------------------------------------------------------

    def _whole(self, used: Set[str]) -> list[VM]:
        """Returns VMs that are warm, oldest first."""
        return [vm for vm in self._vms if vm.state(used) is VmState.WARM]

    def _beside(self, used: Set[str]) -> list[str]:
        """Returns free nodes on VMs that are in use, or that still wait for other nodes."""
        partly = [vm for vm in self._vms if vm.state(used) in (VmState.USED, VmState.BOOTING)]
        return [node for node in self._free(partly) if node not in used]

    @staticmethod
    def _free(vms: Iterable[VM]) -> list[str]:
        return [node for vm in vms for node in vm.nodes]

    def _check_ready(self, vm: VM, now: float) -> None:
        if not vm.is_ready and not vm.is_found and len(vm.nodes) >= vm.size:
            vm.is_ready = True
            self._provisioned.append(now - vm.ordered)
            self._tell(VMReady(vm=vm.name, nodes=tuple(vm.nodes), seconds=now - vm.ordered))

    def _check_lives(self, vm: VM, why: str, now: float) -> None:
        """Replaces a VM that has no node left."""
        if vm.nodes:
            return
        self._lose(vm, f"{why}, the last of it", now)

    def _lose(self, vm: VM, why: str, now: float) -> None:
        if vm.departure is None:
            self._tell(VMLost(vm=vm.name, why=why, seconds=now - vm.ordered))
        if vm.departure is None or vm.departure.may_stay:
            vm.departure = Departure(now, why, is_loss=True)

    def _node_failed(self, name: str, reason: str, now: float) -> None:
        if self._node_orders.failed(now):
            wait = self._node_orders.wait
            why = f"a node on it did not start: {reason}; the next try is in {wait:g} s"
            self._tell(ProviderFailed(vm=name, why=why))

    # -- events and names ---------------------------------------------------------------------------------------------

    def _tell(self, event: PoolEvent) -> None:
        self._events.append(event)

    def _once(self, episode: str, holds: bool, event: PoolEvent) -> None:
        """Emits the event at the begin of an episode only."""
        if holds and episode not in self._episodes:
            self._events.append(event)
        (self._episodes.add if holds else self._episodes.discard)(episode)

    def _new_name(self) -> str:
        self._numbered += 1
        return f"vm-{self._numbered}"

    def _new_vm(self, name: str, now: float, size: int) -> VM:
        return VM(name, size, now, self._new_backoff())

    def _new_backoff(self) -> Backoff:
        return Backoff(self._settings.retry, self._settings.retry_most)
