"""A Standalone cluster on this machine with pip's pyspark only: each worker is a separate host at 127.0.0.x."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from seep.channels.process import children
from seep.spark.java import check_java
from vmpool.daemon import Daemon, master_at, worker_at


@dataclass(slots=True)
class LocalCluster:
    """A master at 127.0.0.1, workers at 127.0.0.2, 127.0.0.3 …: a context manager that removes all processes and files.

    >>> with LocalCluster(workers=2) as cluster:            # doctest: +SKIP
    ...     run = seep.launch(query, master=cluster.master)
    """

    workers: int = 2  #: 0 if a pool starts them
    cores: int = 4  #: task slots of each
    memory: str = "1g"  #: memory for the executors of each worker
    timeout: float = 60.0  #: seconds to wait for master and workers
    master: str = field(default="", init=False)
    _daemons: dict[str, Daemon] = field(default_factory=dict, init=False)
    _directory: Path = field(default=Path(), init=False)

    def start(self) -> LocalCluster:
        """Returns when all workers have registered."""
        check_java()
        self._directory = Path(tempfile.mkdtemp(prefix="seep-standalone-"))
        try:
            self.master = self._launch(master_at("127.0.0.1", self._directory / "master")).await_up(self.timeout)[1]
            for host in self.hosts:
                self._launch(self._worker(host))
            for host in self.hosts:
                self._daemons[host].await_up(self.timeout)
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """The workers' addresses."""
        return tuple(f"127.0.0.{number + 2}" for number in range(self.workers))

    def executors(self) -> dict[str, list[int]]:
        """Returns, for each worker, the pids of its executor JVMs."""
        started = {host: children([self._daemons[host].pid]) for host in self.hosts}
        return {host: [pid for pid in pids if _is_executor(pid)] for host, pids in started.items()}

    def stop(self) -> None:
        """Ends what `start` started, including executors, and removes their files."""
        for daemon in self._daemons.values():
            daemon.end()  # in parallel, so that it takes no longer than for one
        for daemon in self._daemons.values():
            daemon.stop()
        self._daemons.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, daemon: Daemon) -> Daemon:
        self._daemons[daemon.host] = daemon
        daemon.start()
        return daemon

    def _worker(self, host: str) -> Daemon:
        return worker_at(host, self._directory / host, master=self.master, cores=self.cores, memory=self.memory)


def _is_executor(pid: int) -> bool:
    """Whether a process is an executor, and not the rest of the shell that started the worker."""
    try:
        return b"ExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
