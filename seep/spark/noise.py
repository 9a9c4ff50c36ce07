"""Filters the output of Spark's JVM, from its start to its end: drops lines that no user needs."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

#: Logs errors only, and nothing about lost tasks, because the fleet reports a node's end in one line. Spark prints a
#: line about levels unless its gateway has its own level.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = Spark: %p %c{1}: %m%n%ex{3}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.workers.name = org.apache.spark.api.python
logger.workers.level = off
logger.cluster.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.cluster.level = off
"""

#: Seconds to wait for the last line, after the JVM has ended.
_PATIENCE = 2.0

#: Lines that the JVM itself writes, before the log settings apply.
_KNOWN = ("WARNING: Using incubator modules", "Picked up JAVA_TOOL_OPTIONS", "Picked up _JAVA_OPTIONS")


def quiet_logging(directory: Path) -> str:
    """Returns the JVM option that silences Spark from the first line; writes a file that the JVM reads at its start."""
    path = directory / "log4j2.properties"
    path.write_text(_LOGGING, encoding="ascii")
    return f"-Dlog4j2.configurationFile={path.as_uri()}"


class StderrFilter:
    """A stderr for the JVM that passes lines on to ours, except known noise; output of nodes comes this way too.

    Lines are kept until the JVM has `started`: if it does not start, they become part of the error.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._kept: list[str] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, name="seep Spark stderr", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """Passes lines on at once from now on. Closes our end of the pipe; the JVM has its own."""
        os.close(self.writing)
        with self._lock:
            kept, self._kept = self._kept or [], None
            sys.stderr.writelines(kept)

    def failed(self) -> str:
        """Returns the output of the JVM, without its stack."""
        os.close(self.writing)
        self.join()
        return "".join(line for line in self._kept or () if not line.startswith("\tat ")).strip()

    def join(self) -> None:
        """Waits for the last line."""
        self._thread.join(_PATIENCE)

    def _pass_on(self) -> None:
        with os.fdopen(self._reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.startswith(_KNOWN):
                    self._take(line)

    def _take(self, line: str) -> None:
        with self._lock:
            if self._kept is None:
                sys.stderr.write(line)
            else:
                self._kept.append(line)
