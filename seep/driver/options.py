"""The options of a run: what `seep.launch` and the command line take, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from policies.backup import BackupSection, BackupStrategy
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.scaling.settings import ScalingSettings
from primitives.errors import UserError
from primitives.graph import Kind
from seep.channels.bulk import CREDIT, LEAST_CREDIT
from seep.dashboard.settings import DashboardSettings
from seep.logs.settings import LogSettings
from seep.metrics.settings import MetricsSettings
from seep.operators.room import DEFAULT_MEMORY
from seep.protocol.manager.state import ManagerSettings
from seep.query.program import Program
from seep.storage.settings import StorageSettings
from vmpool.settings import PoolSettings, VMSettings

#: Seconds between two rounds of trims: each round is a letter to every node, too many for every short epoch.
_TRIM = 0.1
#: Epochs that may be open besides those of the file that a sink is writing, even if the window is smaller.
_BESIDE_ROLL = 6


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run. Times are in seconds."""

    epoch: float = 0.05  #: time between two ticks, if the query keeps up
    checkpoint: float | None = 5.0  #: time between two checkpoints of an instance; None: only for plans
    window: int = 16  #: epochs that may be open at once, from tick to commit
    nodes: int | None = None  #: number of nodes; one per instance if not given
    spare: int | None = None  #: warm VMs that the pool keeps; as its settings say, if not given
    recovery_parallelism: int = 1  #: number of instances that replace a failed stateful one
    heartbeat: float = 0.1  #: time between two heartbeats of a node
    patience: float = 3.0  #: how long a node may be silent before it is given up
    start_timeout: float = 60.0  #: how long the first nodes may take to register
    buffer_budget: int = 256 << 20  #: bytes of buffer state per instance that stay in memory
    bulk_credit: int = CREDIT  #: most unacknowledged bytes of state from one process to another
    state_budget: int | None = None  #: bytes of state per node that stay in memory, of containers that can go to disk
    tls: bool | tuple[Path, Path] = False  #: encrypt: with a certificate made for this run, or (certificate, key) files
    seconds: float | None = None  #: end the input after this time; None to read all of it
    storage: StorageSettings = field(default_factory=StorageSettings)  #: the place of checkpoints after the run
    restore: str | None = "auto"  #: the beginning: `auto`, `none`, `latest`, or the number of a checkpoint there
    fall_back: bool = False  #: if the latest checkpoint is damaged, begin from the one before
    allow_dropped_state: bool = False  #: allow state of operators that the query does not have any more
    vm: VMSettings = field(default_factory=VMSettings)  #: limits of each VM
    pool: PoolSettings = field(default_factory=PoolSettings)  #: the provider of VMs, and how many are kept warm
    backup: BackupSection = field(default_factory=BackupSection)  #: the place of backups
    migration: MigrationSettings = field(default_factory=MigrationSettings)  #: the steps in which slots move
    balance: BalanceSettings = field(default_factory=BalanceSettings)  #: how the load of instances is balanced
    scaling: ScalingSettings = field(default_factory=ScalingSettings)  #: how the number of instances is decided
    log: LogSettings = field(default_factory=LogSettings)  #: which log lines are written, and in which form
    metrics: MetricsSettings = field(default_factory=MetricsSettings)  #: where metrics are served, and pushed to
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)  #: where the live page is served

    def __post_init__(self) -> None:
        for name in ("epoch", "heartbeat", "patience", "start_timeout"):
            if getattr(self, name) <= 0:
                raise UserError(f"option {name!r} is {getattr(self, name)}; it must be more than 0 seconds")
        for name in ("checkpoint", "seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"option {name!r} is {value}; it must be more than 0 seconds, or None")
        for name, least in (
            ("window", 1),
            ("recovery_parallelism", 1),
            ("buffer_budget", 0),
            ("bulk_credit", LEAST_CREDIT),
        ):
            if getattr(self, name) < least:
                raise UserError(f"option {name!r} is {getattr(self, name)}; it must be at least {least}")
        for name, least in (("nodes", 1), ("spare", 0), ("state_budget", 1 << 20)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"option {name!r} is {value}; it must be at least {least}")

    @property
    def state_memory(self) -> int:
        """The `state_budget`; by default half of a VM's memory if that is given, else 1 GiB."""
        if self.state_budget is not None:
            return self.state_budget
        return self.vm.memory // 2 if self.vm.memory else DEFAULT_MEMORY

    @property
    def whole_pool(self) -> PoolSettings:
        """The pool's settings, with `spare` as its size if given."""
        if self.spare is None:
            return self.pool
        return self.pool.model_copy(update={"size": self.spare, "reserve": min(self.spare, self.pool.reserve)})

    def manager_settings(self, program: Program) -> ManagerSettings:
        """The settings of the manager of a program's run."""
        roll = max((definition.roll for definition, _ in program.sinks.values()), default=1)
        strategies = {o: self.backup.of(o).strategy for o in program.graph.of_kind(Kind.STATEFUL)}
        return ManagerSettings(
            last_cut=self.storage.location is not None,
            window=max(self.window, roll + _BESIDE_ROLL),
            trim_every=max(1, round(_TRIM / self.epoch)),
            recovery_parallelism=self.recovery_parallelism,
            unkept=frozenset(o for o, strategy in strategies.items() if strategy is BackupStrategy.NONE),
            patience={o: round(self.backup.of(o).timeout / self.epoch) for o in program.graph.operators},
        )
