"""Control in a schedule: the real steward and the real pool, with policies, providers and loads that a seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.backup import BackupSection, BackupSettings, BackupStrategy
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings, Strategy
from policies.scaling.governor import Governor
from policies.scaling.settings import DetectorSettings, Mechanism, ScalingSettings
from primitives.errors import UserError
from primitives.event import Event
from seep.control.requests import MigrationRequests
from seep.control.steward import Steward, StewardSettings
from seep.kernel.fleet import KernelFleet, RequestOutcome
from seep.kernel.steering import KernelSteering
from seep.record.events import MigrationBegun, ScalingIn, ScalingOut
from seep.record.facts import Facts
from seep.record.status import OpenDecision
from seep.simulator.laws import LawBroken, Laws
from seep.simulator.load import Load, SimulatedSenses
from seep.simulator.policies import BALANCERS, Manner, balancer_of, policy_of, random_manner, settings_of_policy
from vmpool.pool import Pool
from vmpool.settings import PoolSettings

if TYPE_CHECKING:
    from seep.simulator.world import World

#: Simulated seconds of a step.
STEP_SECONDS = 0.01
#: Steps between two calls of the steward.
EVERY = 50


class RandomProvider:
    """A provider that starts VMs after a random time, refuses some, and at times refuses all of them."""

    def __init__(self, rng: random.Random, now: Callable[[], int]) -> None:
        self._rng, self._now = rng, now
        self._starts = rng.choice(((1, 10), (20, 80), (50, 300)))
        self._fails = rng.choice((0.0, 0.0, 0.2))
        self.refuses_until = 0

    def start(self) -> RequestOutcome:
        """See `CloudBehaviour`."""
        steps = self._rng.randint(*self._starts)
        if self._now() < self.refuses_until or self._rng.random() < self._fails:
            return RequestOutcome(steps, "no capacity", again=self._rng.random() < 0.8)
        return RequestOutcome(steps)

    def stop(self) -> RequestOutcome:
        """See `CloudBehaviour`; nodes there may run long after they were given up."""
        steps = self._rng.choice((1, 20, 600))
        return RequestOutcome(steps, "it does not answer" if self._rng.random() < self._fails else "")

    def order(self) -> RequestOutcome:
        """See `CloudBehaviour`."""
        return RequestOutcome(self._rng.randint(1, 5), "refused" if self._rng.random() < self._fails else "")

    def boot(self) -> int:
        """See `CloudBehaviour`."""
        return self._rng.randint(1, 40)

    def tries_again(self) -> bool:
        """See `CloudBehaviour`."""
        return self._rng.random() < 0.3


class ScheduleControl:
    """Steward and pool of a schedule. Each restart has new ones, with the same random settings."""

    def __init__(self, world: World, seed: int) -> None:
        rng = random.Random(f"{seed} control")
        self._world, self._rng = world, rng
        self.provider = RandomProvider(rng, lambda: world.now)
        graph = world.query.graph
        self.load = Load(rng, {operator: spec.slot_bits for operator, spec in graph.operators.items()})
        self.policy, self.balancer = random_manner(rng), random_manner(rng)
        self.settings = self._draw_settings(rng)
        self._pool = PoolSettings(
            size=1,
            reserve=rng.choice((0, 1)),
            nodes_per_vm=rng.choice((1, 1, 2)),
            max_vms=rng.choice((6, 6, 8)),
            idle=rng.choice((5.0, 20.0)),
            retry=0.2,
            retry_most=1.0,
        )
        self.requests = MigrationRequests(graph, self.settings.migration)

    def _draw_settings(self, rng: random.Random) -> StewardSettings:
        replicas = self._world.limits.replicas
        strategy = rng.choice((BackupStrategy.UPSTREAM,) * 3 + (BackupStrategy.REPLICAS, BackupStrategy.STORAGE))
        backup = BackupSettings(strategy=BackupStrategy.REPLICAS if replicas else strategy, replicas=replicas or 1)
        order = self._world.query.graph.order
        scaling = ScalingSettings(
            **settings_of_policy(rng, order),
            detector=DetectorSettings(report=rng.choice((0.6, 1.0))),
            cooldown=rng.choice((0.3, 2.0)),
            timeout=rng.choice((3.0, 10.0)),
            mechanism=rng.choice(list(Mechanism)),
            sources=rng.random() < 0.3,
            sinks=rng.random() < 0.3,
        )
        return StewardSettings(
            scaling=scaling,
            migration=MigrationSettings(strategy=rng.choice(list(Strategy)), batch=rng.randint(1, 3)),
            balance=BalanceSettings(
                enabled=rng.random() < 0.5, balancer=rng.choice(BALANCERS), window=rng.choice((0.4, 1.0)), history=6
            ),
            backup=BackupSection(default=backup),
            checkpoint=rng.choice((None, None, 1.0, 4.0)),
            heartbeat=0.02,
        )

    # -- lives --------------------------------------------------------------------------------------------------------

    def begin(self, nodes: int) -> None:
        """Begins a life of the query, on at least `nodes` nodes."""
        world, graph = self._world, self._world.query.graph
        self._born = world.now
        self._is_over = False
        self.fleet = KernelFleet(world, Pool(self._pool), self.provider, self.seconds, self.tell)
        self.laws = Laws(self.settings.scaling.timeout, self._standing)
        manners = {"policy": self.policy, "balancer": self.balancer}
        report = self.settings.scaling.detector.report
        self.senses = SimulatedSenses(world, self._rng, self.load, report, self.seconds, manners, STEP_SECONDS)
        most = {operator: 1 << spec.slot_bits for operator, spec in graph.operators.items()}
        governor = Governor(policy_of(self.policy, self.settings.scaling), self.settings.scaling, most)
        self.steward = Steward(graph, governor, self.settings, balancer_of(self.balancer, self.settings.balance))
        self.steering = KernelSteering(world, self.steward, self.fleet, self.senses, self.seconds, self.tell)
        self.fleet.fill(nodes)

    def seconds(self) -> float:
        """Seconds since this life began."""
        return (self._world.now - self._born) * STEP_SECONDS

    def step(self) -> None:
        """Makes pool and steward take a step, and checks that they keep the laws."""
        if self._is_over:
            return
        self.fleet.step()
        self.fleet.check()
        late, self.senses.late = self.senses.late, False
        self.steering.step()
        self.steward.validate()
        if self._world.now > self._world.calm:
            goes_by_load = self.policy is Manner.SHIPPED and self.settings.scaling.policy != "schedule"
            is_steady = self.load.is_steady and goes_by_load
            self.laws.faults_are_over(self.seconds(), is_steady)
        if self.fleet.wanted and self.steward.migrations.is_idle and not self.steward.decisions():
            raise LawBroken(f"nothing is open, and the pool is to have {self.fleet.wanted} nodes ready")
        self.laws.look(self.seconds(), self._world.manager.committed, self.steward.decisions(), late)

    def end(self) -> None:
        """Ends the steward's open decisions at the end of the run, and checks the laws for the last time."""
        if not self._is_over:
            self._is_over = True
            self.steering.end()
            self.laws.end(self.seconds(), self._world.manager.committed, self.steward.decisions())

    def _standing(self, decision: OpenDecision) -> object:
        """Returns the progress of a decision, as far as the manager knows it."""
        manager = self._world.manager
        if decision.kind == "drain":
            return sum(seat.node == decision.subject for seat in manager.placement.values())
        return manager.topology.history[decision.subject][-1].first

    # -- events -------------------------------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Handles an event of the manager."""
        self.steering.hear(event)
        self.laws.hear(event)

    def tell(self, event: Event) -> None:
        """Handles an event of the steward or the pool."""
        self._world.count(event)
        self.laws.hear(event)
        match event:
            case MigrationBegun(strategy=strategy):
                self._world.tally.count(f"strategy {strategy}")
            case ScalingOut() | ScalingIn():
                self._world.tally.count(f"strategy {self.settings.migration.strategy}")

    def put(self, request: Callable[[Facts], object]) -> bool:
        """Makes a request to the steward as a user would; returns whether the steward accepts it."""
        if self._is_over:
            return False
        try:
            request(self.steering.facts())
        except UserError:
            self._world.tally.count("request refused")
            return False
        return True

    def open_decisions(self) -> list[str]:
        """Returns the kinds of open decisions, for the table of faults; a migration has its strategy too."""
        if self._is_over:
            return []
        migrations = [each for each in self.steward.migrations.under_way() if each.is_told]
        kinds = [each.kind for each in self.steward.decisions() if each.kind != "migration"]
        return [*kinds, *(f"migration {each.pace.name}" for each in migrations)]
