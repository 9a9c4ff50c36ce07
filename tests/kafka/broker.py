"""A real Kafka broker on loopback: one node that is its own controller."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

_FRUGAL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Broker:
    """A context manager that leaves no process; its topics are made when they are first written to."""

    def __init__(self, classpath: str, directory: Path) -> None:
        self._classpath, self._directory = classpath, directory
        self._ports = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._settings = directory / "server.properties"
        self._settings.write_text(self._properties(), encoding="utf-8")
        self._format()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Returns when it takes connections."""
        with (self._directory / "log").open("ab") as log:
            command = [*self._java("kafka.Kafka"), str(self._settings)]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._directory, preexec_fn=_die_with_parent
            )
        deadline = time.monotonic() + 60.0
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._directory / "log").read_text("utf-8")[-3_000:])
            time.sleep(0.1)

    def kill(self) -> None:
        """At once, as a machine that loses its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._ports[0]), 1.0).close()
        except OSError:
            return False
        return True

    def _format(self) -> None:
        command = [*self._java("kafka.tools.StorageTool"), "format", "-t", "c2VlcC1rYWZrYS10ZXN0cw", "-c"]
        done = subprocess.run([*command, str(self._settings)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _java(self, main: str) -> list[str]:
        return ["java", *_FRUGAL, "-cp", self._classpath, main]

    def _properties(self) -> str:
        plain, controller = self._ports
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": self._directory / "data",
            "num.partitions": 3,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "broker.heartbeat.interval.ms": 300,  # or else it takes 15 s until its own controller lets it in again
            "broker.session.timeout.ms": 1_500,
            "group.initial.rebalance.delay.ms": 0,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def _die_with_parent() -> None:
    """Else a test that is killed for its time would leave it behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
