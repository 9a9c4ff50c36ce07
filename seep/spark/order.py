"""An order for one node: what its main function is told when Spark has found a place for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from seep.channels.process import ProcessId


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """Handed to a node's main function, in the process that is the node."""

    id: str
    attempt: int  #: above 0, Spark runs it again, or a second time at once: a new node, which resumes nothing
    process: ProcessId  #: this one
    settings: Any  #: what the fleet was given for all its nodes


def carry_out(main: Callable[[NodeOrder], None], settings: Any, order: str) -> None:
    """Runs the main function of a node, in a Spark task; returns when the node is done."""
    context = TaskContext.get()
    main(NodeOrder(order, context.attemptNumber() if context else 0, ProcessId.this(), settings))
