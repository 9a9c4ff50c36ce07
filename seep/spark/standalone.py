"""A Standalone cluster on this machine, from pip's pyspark alone: every worker is a host of its own at 127.0.0.x."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import pyspark

from primitives.errors import EnvironmentFault
from seep.spark.java import check_java
from seep.spark.process import children

_CLASS = "org.apache.spark.deploy"
_MASTER_UP = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_UP = re.compile(r"Successfully registered with master")
#: The daemons only start and watch executors.
_FRUGAL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_POLL = 0.05
#: How long a daemon may take to end by itself, with its executors.
_PATIENCE = 10.0


@dataclass(slots=True)
class LocalCluster:
    """A master at 127.0.0.1, workers at 127.0.0.2, 127.0.0.3 …: a context manager that leaves no process and no file.

    >>> with LocalCluster(workers=2) as cluster:            # doctest: +SKIP
    ...     run = seep.launch(query, master=cluster.master)
    """

    workers: int = 2
    cores: int = 4  #: task slots of each
    memory: str = "1g"  #: of each, for its executors
    timeout: float = 60.0  #: seconds for master and workers to be there
    master: str = field(default="", init=False)
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _directory: Path = field(default=Path(), init=False)

    def start(self) -> LocalCluster:
        """Returns when all workers have registered."""
        check_java()
        self._directory = Path(tempfile.mkdtemp(prefix="seep-standalone-"))
        try:
            self._launch("127.0.0.1", "master.Master", [])
            self.master = self._await("127.0.0.1", _MASTER_UP)[1]
            for host in self.hosts:
                size = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self._directory / host)]
                self._launch(host, "worker.Worker", [*size, self.master])
            for host in self.hosts:
                self._await(host, _WORKER_UP)
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """The workers' addresses."""
        return tuple(f"127.0.0.{number + 2}" for number in range(self.workers))

    def executors(self) -> dict[str, list[int]]:
        """Worker -> pids of the executor JVMs that it runs now."""
        started = {host: children([self._daemons[host].pid]) for host in self.hosts}
        return {host: [pid for pid in pids if _is_executor(pid)] for host, pids in started.items()}

    def stop(self) -> None:
        """Ends what `start` began, executors too, and removes their files."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for daemon in self._daemons.values():
                _signal_group(daemon, signal_number)
            deadline = time.monotonic() + _PATIENCE
            for daemon in self._daemons.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(max(0.0, deadline - time.monotonic()))
        self._daemons.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, host: str, name: str, arguments: list[str]) -> None:
        """Starts a daemon in a process group of its own, which its executors join."""
        home = Path(pyspark.__file__).parent
        where = ["--host", host, "--port", "0", "--webui-port", "0"]
        with self._log(host).open("wb") as log:
            self._daemons[host] = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"{_CLASS}.{name}", *where, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(host, home),
                start_new_session=True,
            )

    def _environment(self, host: str, home: Path) -> Mapping[str, str]:
        """Ours, less the settings of other clusters."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return kept | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self._directory),
            "SPARK_LOCAL_IP": host,
            "SPARK_PUBLIC_DNS": host,
            "SPARK_LOCAL_DIRS": str(self._directory),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _FRUGAL_JVM,
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self._directory}",  # of the executors too
            "TMPDIR": str(self._directory),
        }

    def _log(self, host: str) -> Path:
        return self._directory / f"{host}.log"

    def _await(self, host: str, sign: re.Pattern[str]) -> re.Match[str]:
        """Waits for a line in a daemon's log."""
        deadline = time.monotonic() + self.timeout
        while not (found := sign.search(text := self._log(host).read_text(encoding="utf-8", errors="replace"))):
            if self._daemons[host].poll() is not None or time.monotonic() > deadline:
                last = "\n".join(text.splitlines()[-5:])
                raise EnvironmentFault(f"the Spark daemon at {host} did not start within {self.timeout:.0f} s:\n{last}")
            time.sleep(_POLL)
        return found


def _is_executor(pid: int) -> bool:
    """Not so: what is left of the shell that started the worker."""
    try:
        return b"ExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _signal_group(daemon: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(daemon.pid, number)
