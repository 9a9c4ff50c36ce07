"""The options of a run: what `seep.launch` and the command line take, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from primitives.errors import UserError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a query is run. Times are seconds."""

    epoch: float = 0.05  #: between two ticks, if the query keeps up
    checkpoint: float | None = 5.0  #: between two rounds of checkpoints; None for none but those that plans need
    window: int = 16  #: epochs that may be open at once, from tick to commit
    nodes: int | None = None  #: that host the instances; one per instance if not given
    spare: int = 1  #: idle nodes kept warm for recovery
    recovery_parallelism: int = 1  #: over how many instances a failed stateful one is spread
    heartbeat: float = 0.1  #: how often a node says that it is there
    patience: float = 3.0  #: how long a node may be silent before it is given up
    start_timeout: float = 60.0  #: how long the first nodes may take to register
    buffer_budget: int = 256 << 20  #: bytes of buffer state per instance that stay in memory
    tls: bool | tuple[Path, Path] = False  #: encrypt: with a certificate made for this run, or (certificate, key) files
    seconds: float | None = None  #: end the input after so long; None to read all of it

    def __post_init__(self) -> None:
        for name in ("epoch", "heartbeat", "patience", "start_timeout"):
            if getattr(self, name) <= 0:
                raise UserError(f"option {name!r} is {getattr(self, name)}; it must be more than 0 seconds")
        for name in ("checkpoint", "seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"option {name!r} is {value}; it must be more than 0 seconds, or None")
        for name, least in (("window", 1), ("spare", 0), ("recovery_parallelism", 1), ("buffer_budget", 0)):
            if getattr(self, name) < least:
                raise UserError(f"option {name!r} is {getattr(self, name)}; it must be at least {least}")
        if self.nodes is not None and self.nodes < 1:
            raise UserError(f"option 'nodes' is {self.nodes}; it must be at least 1")
