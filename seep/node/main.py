"""The main function of a node, which runs in a Spark task."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from seep.logs.handlers import lines_on_stderr
from seep.node.node import NodeProcess, NodeSettings, prepare_process
from seep.node.rehearsal import rehearse
from seep.query.program import Program
from seep.spark.address import node_host
from seep.spark.order import NodeOrder


@dataclass(frozen=True, slots=True)
class NodeTask:
    """The program and settings of all nodes of a run; Spark sends it with the closure of the task."""

    program: Program
    settings: NodeSettings


def serve(order: NodeOrder) -> None:
    """Makes this process a node; returns when the node ends."""
    task: NodeTask = order.settings
    with lines_on_stderr(task.settings.log):
        prepare_process()
        rehearse(task.program)
        host = node_host(task.settings.driver.host)
        NodeProcess(task.program, task.settings, host, order, local_directory(task.settings.run)).run()


def local_directory(run: str) -> Path:
    """Returns the directory for this node's files, below one that Spark removes with the application, if any."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(given or tempfile.gettempdir()) / f"seep-{run}-{os.getpid()}"
