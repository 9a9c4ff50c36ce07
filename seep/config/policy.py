"""The policy file: how a query runs, on which VMs, and how it is scaled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ByteSize, Field, PositiveFloat, PositiveInt, WithJsonSchema

from formats.settings import OptionalSeconds, Seconds, Section
from policies.backup import BackupSection
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.scaling.settings import ScalingSettings
from seep.dashboard.settings import DashboardSettings
from seep.logs.settings import LogSettings
from seep.metrics.settings import MetricsSettings
from seep.rows.rate import Profile
from seep.storage.settings import StorageSettings
from vmpool.settings import PoolSettings, VMSettings

_ROWS = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kM]?)")
_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000}


def rows_per_second(text: str) -> float | None:
    """Reads a rate; None for `max`, which means no limit.

    >>> rows_per_second("20k"), rows_per_second("1_500"), rows_per_second("2.5M"), rows_per_second("max")
    (20000.0, 1500.0, 2500000.0, None)
    """
    if text == "max":
        return None
    read = _ROWS.fullmatch(text.strip())
    rate = float(re.sub("[_,]", "", read[1])) * _THOUSANDS[read[2]] if read else 0.0
    if rate <= 0:
        raise ValueError(
            f"{text!r} is not a rate; write rows per second, such as 500, 20k or 1.5M, or max for no limit"
        )
    return rate


class Certificate(Section):
    """The user's own certificate and key."""

    certificate: Path = Field(description="PEM file with the certificate.")
    key: Path = Field(description="PEM file with its key.")


def _encryption(given: object) -> object:
    """Chooses one of the two types by the form of the value, so that an error is about that type only."""
    if isinstance(given, Mapping):
        return Certificate.model_validate(given)
    if isinstance(given, bool | Certificate):
        return given
    raise ValueError("write true, false, or a mapping with certificate and key")


def _rate(given: object) -> object:
    return rows_per_second(given) if isinstance(given, str) else given


#: Rows per second, such as 500 or 20k; none for no limit.
RowsPerSecond = Annotated[
    PositiveFloat | None,
    BeforeValidator(_rate),
    WithJsonSchema({"type": ["number", "string", "null"], "format": "rate"}),
]


class RunSection(Section):
    """How a query runs: the fields of `RunOptions`, and others that have flags. Only fields that are set count."""

    epoch: Seconds = Field(0.05, description="Time between two ticks, if the query keeps up.")
    checkpoint: OptionalSeconds = Field(
        5.0, description="Time between two rounds of checkpoints; none for those alone that plans need."
    )
    window: int = Field(
        16,
        ge=1,
        description="Epochs open at once, at most, from tick to commit; at least 6 more than a sink puts into a file.",
    )
    nodes: int | None = Field(None, ge=1, description="Nodes that host the instances; one per instance if not given.")
    spare: int | None = Field(None, ge=0, description="Short for `pool.size`, which it overrides.")
    recovery_parallelism: int = Field(1, ge=1, description="Number of instances that replace a failed stateful one.")
    heartbeat: Seconds = Field(0.1, description="Time between two heartbeats of a node.")
    patience: Seconds = Field(3.0, description="How long a node may be silent before it is given up.")
    start_timeout: Seconds = Field(60.0, description="How long the first nodes may take to register.")
    buffer_budget: ByteSize = Field(
        ByteSize(256 << 20), description="Buffer state of each instance that stays in memory; the rest is on disk."
    )
    bulk_credit: ByteSize = Field(
        ByteSize(16 << 20),
        ge=1 << 20,
        description="State (checkpoints, restores, handovers) under way from one process to another.",
    )
    state_budget: ByteSize | None = Field(
        None,
        ge=1 << 20,
        description="State of each node that stays in memory, of containers that can go to disk; "
        "half of `vm.memory` if not given, or 1GiB.",
    )
    tls: Annotated[bool | Certificate, BeforeValidator(_encryption)] = Field(
        False, description="Encrypt all channels: true with a certificate made for the run, or with your own."
    )
    restore: str | None = Field(
        "auto",
        pattern=r"^(auto|none|latest|\d+)$",
        description="Where to begin: auto (go on from what is in storage, if there is anything), none (from nothing), "
        "latest (of the checkpoints there, of which there must be one), or the number of one.",
    )
    fall_back: bool = Field(False, description="If the latest checkpoint is damaged, begin from the one before.")
    allow_dropped_state: bool = Field(
        False, description="Begin even if the checkpoint has state of operators that the query does not have."
    )
    seconds: OptionalSeconds = Field(None, description="End the input after this time; none to read all of it.")
    parallelism: dict[str, PositiveInt] = Field(
        default_factory=dict, description="Instances of operators at the start, by name; else as the query says."
    )
    rate: RowsPerSecond = Field(
        None, description="Rows per second of each source, such as 20k; none: as the query says."
    )
    rate_profile: Profile = Field(Profile.STEADY, description="How the rate, at its highest, changes over each period.")
    rate_period: Seconds = Field(60.0, description="The period of the rate profile.")

    def given(self) -> dict[str, Any]:
        """Returns the fields that are set, in the form of `RunOptions` and `Rate`."""
        said: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        if isinstance(self.tls, Certificate):
            said["tls"] = (self.tls.certificate, self.tls.key)
        return said


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
    log: LogSettings = Field(LogSettings(), description="Which log lines are written, and in which form.")
    metrics: MetricsSettings = Field(
        MetricsSettings(), description="Where the driver serves metrics, and pushes them to."
    )
    dashboard: DashboardSettings = Field(
        DashboardSettings(), description="Where the driver serves the live page and the REST API."
    )
