"""What runs inside the task of a node."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from seep.node.node import NodeProcess, NodeSettings, prepare_process
from seep.node.rehearsal import rehearse
from seep.query.program import Program
from seep.spark.address import node_host
from seep.spark.order import NodeOrder


@dataclass(frozen=True, slots=True)
class NodeTask:
    """What all nodes of a run are given; Spark brings it, as it brings any closure."""

    program: Program
    settings: NodeSettings


def serve(order: NodeOrder) -> None:
    """Makes this process a node; returns when the node's time is over."""
    task: NodeTask = order.settings
    prepare_process()
    rehearse(task.program)
    host = node_host(task.settings.driver.host)
    NodeProcess(task.program, task.settings, host, order, local_directory(task.settings.run)).run()


def local_directory(run: str) -> Path:
    """Where this node may put files: below a directory that Spark clears away with the application, if it says one."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(given or tempfile.gettempdir()) / f"seep-{run}-{os.getpid()}"
