"""Quiet: what Spark's JVM says before, while and after a session runs, less what nobody needs to read."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

#: Errors only; and nothing of lost tasks, for the fleet tells of a node's end in one line. Spark prints a line about
#: levels unless its gateway has a level of its own.
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

#: Seconds for the last line to come, once the JVM has ended.
_PATIENCE = 2.0

#: Lines that the JVM itself writes, before any setting of a log applies.
_KNOWN = ("WARNING: Using incubator modules", "Picked up JAVA_TOOL_OPTIONS", "Picked up _JAVA_OPTIONS")


def quiet_logging(directory: Path) -> str:
    """The JVM option that silences Spark from the first line on; writes a file that must stay until the JVM is up."""
    path = directory / "log4j2.properties"
    path.write_text(_LOGGING, encoding="ascii")
    return f"-Dlog4j2.configurationFile={path.as_uri()}"


class StderrFilter:
    """A stderr for the JVM that passes every line on to ours, but the known noise; what nodes print comes this way too.

    Until the JVM has `started`, lines are kept back: if it does not start, they belong into the error.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._kept: list[str] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, name="seep Spark stderr", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """From now on lines are passed on at once. The JVM has its end of the pipe; ours goes now."""
        os.close(self.writing)
        with self._lock:
            kept, self._kept = self._kept or [], None
            sys.stderr.writelines(kept)

    def failed(self) -> str:
        """What the JVM had to say, without its stack."""
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
