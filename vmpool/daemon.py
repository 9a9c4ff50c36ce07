"""Starts daemons of a Standalone cluster on this machine from pip's pyspark, each at its own loopback address."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from primitives.errors import EnvironmentFault

_CLASS = "org.apache.spark.deploy"
_MASTER_UP = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_UP = re.compile(r"Successfully registered with master")
#: The daemons only start and watch executors.
_FRUGAL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_POLL = 0.05
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT
#: Seconds that a daemon and its executors get to end by themselves.
_PATIENCE = 10.0


@dataclass(slots=True)
class Daemon:
    """One Spark daemon in its own process group, which its executors join; its files are below `directory`."""

    host: str
    name: str  #: name of its class, such as `worker.Worker`
    arguments: tuple[str, ...]
    directory: Path
    up: re.Pattern[str]  #: the line of its log that shows that it is up
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Starts the process without waiting for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        home = Path(pyspark.__file__).parent
        where = ["--host", self.host, "--port", "0", "--webui-port", "0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"{_CLASS}.{self.name}", *where, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(home),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The pid of the daemon, and of its process group."""
        if self._process is None:
            raise EnvironmentFault(f"the Spark daemon at {self.host} does not run; start it")
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the daemon runs. An ended one stays a zombie, so that no other group gets its number."""
        process = self._process
        try:
            return process is not None and os.waitid(os.P_PID, process.pid, _LOOK) is None
        except ChildProcessError:
            return False

    def await_up(self, timeout: float, is_wanted: Callable[[], bool] = lambda: True) -> re.Match[str]:
        """Waits for the line of its log.

        Raises EnvironmentFault if the daemon ends before, or is not wanted any more.
        """
        deadline = time.monotonic() + timeout
        while not (found := self.up.search(said := self._log.read_text(encoding="utf-8", errors="replace"))):
            if not self.is_alive() or not is_wanted():
                raise self._fault("ended before it was there", said)
            if time.monotonic() > deadline:
                raise self._fault(f"did not start within {timeout:.0f} s", said)
            time.sleep(_POLL)
        return found

    def end(self) -> None:
        """Tells the daemon and its executors to end, without waiting for them."""
        if self._process:
            _signal_group(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Ends the daemon and its executors, after a while by force, and removes their files."""
        if self._process:
            self.end()
            deadline = time.monotonic() + _PATIENCE
            while self.is_alive() and time.monotonic() < deadline:
                time.sleep(_POLL)
            _signal_group(self.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.directory / "daemon.log"

    def _fault(self, what: str, said: str) -> EnvironmentFault:
        """Returns an error with the daemon's last output, without stack traces."""
        lines = [line for line in said.splitlines() if not line.startswith("\t")]
        return EnvironmentFault("\n".join([f"the Spark daemon at {self.host} {what}:", *lines[-3:]]))

    def _environment(self, home: Path) -> Mapping[str, str]:
        """Returns our environment without the settings of other clusters."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return kept | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.directory),
            "SPARK_LOCAL_IP": self.host,
            "SPARK_PUBLIC_DNS": self.host,
            "SPARK_LOCAL_DIRS": str(self.directory),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _FRUGAL_JVM,
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.directory}",  # for the executors too
            "TMPDIR": str(self.directory),
        }


def master_at(host: str, directory: Path) -> Daemon:
    """Returns a Spark master; group 1 of the match of `await_up` is its URL."""
    return Daemon(host, "master.Master", (), directory, _MASTER_UP)


def worker_at(host: str, directory: Path, *, master: str, cores: int, memory: str) -> Daemon:
    """Returns a worker with task slots, and memory for its executors such as `1g`; it is up when it has registered."""
    size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(directory / "work"))
    return Daemon(host, "worker.Worker", (*size, master), directory, _WORKER_UP)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
