"""The steward of a run in this process: its policy and balancer, and the measurements that they decide by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from policies.balance.loads import Balancer, SlotLoads
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.observation import InstanceReport, Observation
from policies.scaling.decision import Policy
from policies.scaling.governor import Governor
from policies.scaling.registry import make_policy
from policies.scaling.settings import ScalingSettings
from primitives.graph import InstanceId, Kind
from primitives.hashing import hash_keys
from primitives.slots import slots_of
from seep.control.balancing import check_balance
from seep.control.commands import Consult, EndWindow
from seep.control.scalings import check_scaling
from seep.control.steward import Steward, StewardSettings
from seep.kernel.kernel import Kernel
from seep.protocol.messages import Data
from seep.query.program import Program

#: Simulated seconds from one pulse to the next.
PULSE = 1.0


class StewardPlan:
    """The policy, balancer and settings of a run; raises UserError for wrong settings."""

    def __init__(
        self,
        program: Program,
        scaling: ScalingSettings | Policy | None,
        balance: BalanceSettings | Balancer | None,
        migration: MigrationSettings | None,
    ) -> None:
        self._program = program
        self.scaling, self._policy = _scaling_and_policy(scaling)
        self._balance, self._balancer = _balance_and_balancer(balance)
        self.migration = migration or MigrationSettings()
        check_scaling(self.scaling, self._policy, program.graph)
        check_balance(program.graph, self._balance)

    def steward(self) -> Steward:
        """Makes a steward for one run of the query; checkpoints are taken by epochs, without it."""
        graph = self._program.graph
        most = {operator: 1 << spec.slot_bits for operator, spec in graph.operators.items()}
        settings = StewardSettings(
            scaling=self.scaling, migration=self.migration, balance=self._balance, checkpoint=None, epoch=PULSE
        )
        return Steward(graph, Governor(self._policy, self.scaling, most), settings, self._balancer)


def _scaling_and_policy(scaling: ScalingSettings | Policy | None) -> tuple[ScalingSettings, Policy]:
    if scaling is None or isinstance(scaling, ScalingSettings):
        settings = scaling or ScalingSettings()
        return settings, make_policy(settings)
    return ScalingSettings(), scaling


def _balance_and_balancer(balance: BalanceSettings | Balancer | None) -> tuple[BalanceSettings, Balancer | None]:
    if balance is None or isinstance(balance, BalanceSettings):
        return balance or BalanceSettings(), None
    return BalanceSettings(enabled=True), balance


class RowCounts:
    """Counts rows by instance and by slot: the measure of load in a run without a clock.

    An instance that gets `capacity` rows in an epoch is fully used; without a capacity, no instance ever is.
    """

    def __init__(
        self, kernel: Kernel, program: Program, report: float, capacity: float | None, clock: Callable[[], float]
    ) -> None:
        self._kernel, self._program, self._capacity, self._clock = kernel, program, capacity, clock
        self._report, self._observed_at = report, 0.0
        self._observation: Observation | None = None
        self._rows_in, self._rows_out = Counter[InstanceId](), Counter[InstanceId]()
        self._watched: dict[str, NDArray[np.int64]] = {}

    def count(self, message: Data) -> None:
        """Counts the rows that an instance has received."""
        rows = sum(batch.num_rows for batch in message.batches.values())
        self._rows_in[message.receiver.instance] += rows
        self._rows_out[message.sender.instance] += rows
        operator = message.receiver.instance.operator
        if operator in self._watched:
            for port, batch in message.batches.items():
                self._watched[operator] += self._rows_of_slots(operator, port, batch)

    def _rows_of_slots(self, operator: str, port: int, batch: pa.RecordBatch) -> NDArray[np.int64]:
        graph = self._program.graph
        edge = next(edge for edge in graph.inputs[operator] if edge.port == port)
        bits = graph.operators[operator].slot_bits
        columns = self._program.keys[edge] or batch.schema.names
        hashes = hash_keys([batch.column(name) for name in columns])
        return np.bincount(slots_of(hashes, bits), minlength=1 << bits)

    # -- measurements for the steward ---------------------------------------------------------------------------------

    def observation(self) -> Observation | None:
        """See `Senses`."""
        at = self._clock()
        if at >= self._observed_at + self._report:
            self._observation = self._observe(at, at - self._observed_at)
            self._observed_at = at
            self._rows_in.clear()
            self._rows_out.clear()
        return self._observation

    def _observe(self, at: float, seconds: float) -> Observation:
        manager, graph = self._kernel.manager, self._program.graph
        reports = {}
        for instance, seat in manager.placement.items():
            slots = len(manager.topology.history[instance.operator][-1].assignment.slots_of(instance.index))
            if slots and seat.node in manager.nodes:
                is_source = graph.kind(instance.operator) is Kind.SOURCE
                rows = (self._rows_out if is_source else self._rows_in)[instance] / seconds
                used = rows * PULSE / self._capacity if self._capacity else 0.0
                sent = self._rows_out[instance] / seconds
                reports[instance] = InstanceReport(instance, seat.node, used, min(used, 1.0), rows, sent, slots=slots)
        offered = {
            source: sum(report.rows_in for each, report in reports.items() if each.operator == source)
            for source in graph.of_kind(Kind.SOURCE)
        }
        return Observation(at, seconds, reports, offered, dict.fromkeys(offered, 0.0))

    def state_bytes(self) -> Mapping[InstanceId, int]:
        """See `Senses`."""
        return {}

    def watch_slots(self, operators: frozenset[str]) -> None:
        """See `Senses`."""
        bits = {operator: self._program.graph.operators[operator].slot_bits for operator in operators}
        self._watched = {
            operator: self._watched.get(operator, np.zeros(1 << bits[operator], np.int64)) for operator in operators
        }

    def slot_loads(self, window: EndWindow) -> SlotLoads | None:
        """See `Senses`."""
        rows = self._watched.get(window.operator)
        if rows is None:
            return None
        self._watched[window.operator] = np.zeros_like(rows)
        return SlotLoads(window.seconds, window.assignment, rows, moving=window.moving)

    def consult(self, question: Consult, answer: Callable[[object], None]) -> None:
        """See `Senses`: answers at once, and reports failures as in a real run."""
        try:
            answer(question.work())
        except Exception as reason:
            answer(reason)


class FreeNodes:
    """Provides as many warm nodes as are wanted; a leaving node ends when nothing is left on it."""

    def __init__(self, kernel: Kernel, join: Callable[[], None], leave: Callable[[str], None]) -> None:
        self._kernel, self._join, self._leave = kernel, join, leave

    def available(self) -> Sequence[str]:
        """See `WarmNodes`."""
        manager = self._kernel.manager
        used = manager.used_nodes() | manager.roster.leaving
        return [node for node in manager.nodes if node not in used]

    def want(self, count: int) -> None:
        """See `WarmNodes`."""
        for _ in range(count - len(self.available())):
            self._join()

    def leaving(self, node: str) -> None:
        """See `WarmNodes`."""
        self._leave(node)
