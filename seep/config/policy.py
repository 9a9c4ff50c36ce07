"""The policy file: how a query runs, on which VMs, and how it is scaled."""

from __future__ import annotations

from pydantic import Field

from formats.settings import Section
from policies.backup import BackupSection
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.scaling.settings import ScalingSettings
from seep.config.run import RunSection
from seep.storage.settings import StorageSettings
from vmpool.settings import PoolSettings, VMSettings


class PolicyFile(Section):
    """The file of `--policy`. All sections are optional."""

    run: RunSection = Field(RunSection(), description="How the query is run; flags override it.")
    vm: VMSettings = Field(VMSettings(), description="The limits of each VM.")
    pool: PoolSettings = Field(PoolSettings(), description="The pool of pre-warmed VMs.")
    storage: StorageSettings = Field(StorageSettings(), description="Where checkpoints are kept after the run.")
    backup: BackupSection = Field(BackupSection(), description="How operators with state are backed up.")
    migration: MigrationSettings = Field(MigrationSettings(), description="How slots move.")
    balance: BalanceSettings = Field(BalanceSettings(), description="How the load of instances is balanced.")
    scaling: ScalingSettings = Field(ScalingSettings(), description="How the number of instances is decided.")
