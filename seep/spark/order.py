"""An order for one node: the argument of its main function when Spark has found a place for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from seep.channels.process import ProcessId


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """The argument of a node's main function, in the node's process."""

    id: str
    attempt: int  #: above 0 if Spark runs the task again, or a second copy of it: a new node
    process: ProcessId  #: this process
    settings: Any  #: the settings that the fleet has for all its nodes


def carry_out(main: Callable[[NodeOrder], None], settings: Any, order: str) -> None:
    """Runs the main function of a node, in a Spark task; returns when the node ends."""
    context = TaskContext.get()
    main(NodeOrder(order, context.attemptNumber() if context else 0, ProcessId.this(), settings))
