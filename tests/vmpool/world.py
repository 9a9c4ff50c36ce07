"""A world for the pool to act in: a provider, Spark and a run that happen only when told to, in no time at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmpool.actions import Action, CancelOrder, OrderNodes, Start, Stop
from vmpool.events import PoolEvent
from vmpool.pool import Pool
from vmpool.provider import Machine
from vmpool.settings import PoolSettings
from vmpool.vm import VmState


@dataclass(slots=True)
class World:
    """What there really is. With `hosted` Spark puts nodes wherever there is room, else on the VM that they are for."""

    settings: PoolSettings
    hosted: bool = False
    delay: float = 0.0  #: seconds that the provider takes
    now: float = 0.0
    pool: Pool = field(init=False)
    starting: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)  #: VM -> when it was ordered
    stopping: list[str] = field(default_factory=list)
    vanished: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)  #: VMs that have notice
    expected: dict[str, str] = field(default_factory=dict)  #: order that Spark would still carry out -> VM
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)  #: node -> its order, the VM that it is on
    used: set[str] = field(default_factory=set)
    notes: list[PoolEvent] = field(default_factory=list)
    lifetimes: dict[str, float] = field(default_factory=dict)
    closed: bool = False
    _numbered: int = 0

    def __post_init__(self) -> None:
        self.pool = Pool(self.settings)

    # -- the pool -----------------------------------------------------------------------------------------------------

    def step(self, seconds: float = 0.0) -> list[Action]:
        self.now += seconds
        actions = self.pool.step(frozenset(self.used), self.now)
        for action in actions:
            self._do(action)
        return actions

    def settle(self, seconds: float = 10.0, tick: float = 0.5) -> None:
        """Everything succeeds for so long."""
        until = self.now + seconds
        while self.now < until:
            self.step(tick)
            for name in [name for name, since in self.starting.items() if self.now - since >= self.delay]:
                self.start(name)
            for name in list(self.stopping):
                self.stop(name)
            self.run_nodes()

    def close(self) -> None:
        self.closed = True
        self.pool.close(self.now)

    def _do(self, action: Action) -> None:
        match action:
            case Start(name):
                assert name not in self.starting
                self.starting[name] = self.now
                self._check_bound()
            case OrderNodes(name, count):
                orders = [self._new("order") for _ in range(count)]
                self.expected |= dict.fromkeys(orders, name)
                self.pool.nodes_ordered(name, orders)
            case CancelOrder(order):
                self.expected.pop(order, None)
                for node in [node for node, (its, _) in self.nodes.items() if its == order]:
                    self._remove(node)
            case Stop(machine):
                assert self.closed or not self.used.intersection(self.on(machine.name)), "a VM in use was stopped"
                self.stopping.append(machine.name)
            case _:
                self.notes.append(action)

    def _check_bound(self) -> None:
        most = self.settings.max_vms
        assert most is None or len(self.starting) + len(self.running) <= most

    # -- the provider -------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        self.running[name] = self.starting.pop(name)
        host = f"host of {name}" if self.hosted else None
        self.pool.started(Machine(name, name, host), self.now)

    def fail(self, name: str, *, again: bool = True) -> None:
        del self.starting[name]
        self.pool.start_failed(name, "there is no capacity", again, self.now)

    def stop(self, name: str) -> None:
        self.stopping.remove(name)
        self.vanished.discard(name)
        self.leaving.discard(name)
        for node in self.on(name):
            self._remove(node)
        self.lifetimes[name] = self.now - self.running.pop(name)
        self.pool.stopped(name, self.now)

    def vanish(self, name: str) -> None:
        """The VM dies; nobody has noticed. Spark would run its nodes elsewhere."""
        self.vanished.add(name)

    def notice(self, name: str) -> None:
        """The VM will be taken away."""
        self.leaving.add(name)
        self.pool.leaving(name, self.now)

    def poll(self) -> None:
        """The provider is asked which VMs are gone."""
        self.pool.lost(self.vanished & {machine.name for machine in self.pool.machines()}, self.now)

    # -- Spark --------------------------------------------------------------------------------------------------------

    def run_nodes(self) -> None:
        for order in list(self.expected):
            self.run_node(order)

    def run_node(self, order: str) -> None:
        """Spark runs an order, if there is room."""
        rooms = [name for name in self.running if name not in self.vanished and self._has_room(name)]
        wanted = self.expected[order]
        if self.hosted or wanted in rooms:
            for place in rooms[:1] if self.hosted else [wanted]:
                del self.expected[order]
                self.join(self._new("node"), order, place)

    def join(self, node: str, order: str, place: str) -> None:
        self.nodes[node] = order, place
        self.pool.joined(node, order, f"host of {place}" if self.hosted else "127.0.0.1", self.now)

    def kill(self, node: str, *, again: bool = False) -> None:
        """A node dies; Spark tries its order `again`, or says that it is over."""
        order, place = self.nodes[node]
        self._remove(node)
        if again:
            self.expected[order] = place
        else:
            self.pool.order_ended(order, "it crashed", self.now)

    def end(self, order: str) -> None:
        """A node does not even start."""
        del self.expected[order]
        self.pool.order_ended(order, "it crashed", self.now)

    def on(self, name: str) -> list[str]:
        return [node for node, (_, place) in self.nodes.items() if place == name]

    def _remove(self, node: str) -> None:
        del self.nodes[node]
        self.used.discard(node)
        self.pool.node_lost(node, self.now)

    def _has_room(self, name: str) -> bool:
        return len(self.on(name)) < self.settings.nodes_per_vm

    # -- the run ------------------------------------------------------------------------------------------------------

    def use(self, *nodes: str) -> None:
        self.used.update(nodes)

    def free(self, *nodes: str) -> None:
        self.used.difference_update(nodes)

    # -- what tests look at -------------------------------------------------------------------------------------------

    @property
    def warm(self) -> list[str]:
        return self.pool.warm(self.used)

    @property
    def available(self) -> list[str]:
        return self.pool.available(self.used)

    def count(self, *states: VmState) -> int:
        counts = self.pool.counts(self.used)
        return sum(counts[state] for state in states)

    def told(self, kind: str) -> list[PoolEvent]:
        return [note for note in self.notes if note.kind == kind]

    def _new(self, kind: str) -> str:
        self._numbered += 1
        return f"{kind}-{self._numbered}"
