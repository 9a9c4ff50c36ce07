"""Settings of backups: where checkpoints of operators with state are kept while the query runs."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from formats.settings import Seconds, Section


class BackupStrategy(StrEnum):
    """The place where the checkpoints of an instance are kept."""

    UPSTREAM = "upstream"  #: a node of its upstream, chosen by hash (SEEP)
    REPLICAS = "replicas"  #: a group of nodes that can take it over at once (Rhino)
    STORAGE = "storage"  #: the checkpoint storage, from which recovery fetches them (RhinoDFS, Flink)
    NONE = "none"  #: nowhere; upstream keeps no output for it either, and if it is lost the run fails


class BackupSettings(Section):
    """The backup of one operator."""

    strategy: BackupStrategy = Field(BackupStrategy.UPSTREAM, description="upstream, replicas, storage or none.")
    replicas: int = Field(1, ge=1, description="Nodes that hold a replica of each instance (r in Rhino).")
    ready: bool = Field(
        True,
        description="Whether replicas are kept as state too, ready to be taken over, and not as checkpoints alone; "
        "takes the memory of the state on each of their nodes.",
    )
    credits: int = Field(
        2, ge=1, description="Checkpoints of an instance that may be on their way to its replicas at once."
    )
    timeout: Seconds = Field(
        10.0, description="Time that a chain may take for a checkpoint before the member that is stuck is replaced."
    )
    tolerance: float = Field(
        0.25, ge=0, description="By how much of the mean the fullest node may exceed it before replicas move."
    )

    @property
    def stands(self) -> bool:
        """Whether the holder of the checkpoints keeps the restored state ready too."""
        return self.ready and self.strategy is BackupStrategy.REPLICAS


class BackupSection(Section):
    """The backups of all operators with state."""

    default: BackupSettings = Field(BackupSettings(), description="How those that are not named are.")
    operators: dict[str, BackupSettings] = Field(default_factory=dict, description="How single operators are, by name.")

    def of(self, operator: str) -> BackupSettings:
        """Returns the settings for one operator.

        >>> BackupSection(operators={"counter": {"strategy": "replicas", "replicas": 2}}).of("counter").replicas
        2
        """
        return self.operators.get(operator, self.default)
