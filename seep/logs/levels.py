"""Levels and formats of log lines, and the level of each kind of event."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum


class LogLevel(StrEnum):
    """The least important lines that are wanted."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level in Python's `logging`.

        >>> LogLevel.WARNING.number
        30
        """
        return logging.getLevelNamesMapping()[self.name]


class LogFormat(StrEnum):
    """The form of lines that seep itself writes to stderr."""

    TEXT = "text"
    JSON = "json"


_FAILURES = (
    *("failed", "strike failed", "provider failed", "scaling failed", "balancing failed"),
    *("checkpoint failed", "cleaning failed", "compaction failed"),
)
#: Somebody on call should look at these.
_WARNINGS = (
    *("node lost", "killed", "stopped", "notice", "drain given up", "vm lost", "pool exhausted", "refused message"),
    *("bottleneck", "hot slot", "policy slow", "replica late"),
    *("scaling aborted", "scaling refused", "scaling given up", "migration refused", "split aborted"),
)
#: A migration may have a step with every epoch, and each step has these.
_STEPS = ("move announced", "move sealed", "move effective", "move complete", "state taken in")
_USUAL = (
    *("node joined", "node leaving", "drained", "continued", "finished", "halted"),
    *("rebound", "restored", "stood ready", "recovered", "retired"),
    *("split begun", "split effective", "split not possible"),
    *("waiting for VMs", "scaling out", "scaling in", "scaled out", "scaled in", "scaling replaced"),
    *("nothing to scale", "scaling called off", "migration begun", "migrated", "migration cancelled"),
    *("balancing", "balanced", "balancing called off", "nothing to balance", "replicas placed"),
    *("resumed", "persisted", "savepoint", "compacted"),
    *("vm ordered", "vm ready", "vm released", "pool resized"),
)

#: The level of the log line of an event, by its kind.
EVENT_LEVELS: Mapping[str, int] = {
    **dict.fromkeys(_FAILURES, logging.ERROR),
    **dict.fromkeys(_WARNINGS, logging.WARNING),
    **dict.fromkeys(_USUAL, logging.INFO),
    **dict.fromkeys(_STEPS, logging.DEBUG),
}
