"""The Spark session that hosts a run: the user's own, which is not changed, or one that lasts as long as the run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from primitives.errors import EnvironmentFault, UserError
from seep.spark.address import driver_host, driver_interface, is_loopback
from seep.spark.java import check_java
from seep.spark.noise import StderrFilter, quiet_logging
from seep.spark.reason import reason_of_exception
from seep.spark.session_files import make_session_directory
from seep.spark.shipping import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Task slots of a local session: each node takes one and mostly waits, so there may be many more than cores.
LOCAL_SLOTS = 64
#: Set by spark-submit, which has already started the JVM.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
#: Seconds that a master may take to answer, and the JVM to end.
_PATIENCE = 5.0

#: The JVM only schedules nodes: it needs little memory, no optimising compiler, no parallel garbage collector.
_FRUGAL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.task.killTimeout": "0s",
    "spark.speculation": "false",
    "spark.executor.extraJavaOptions": " ".join(_FRUGAL_JVM),
}
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
#: The daemon that forks nodes imports this `seep`, before any shipment.
_READY_DAEMON = {
    "spark.python.daemon.module": "seep.node.daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
}


@dataclass(slots=True)
class Host:
    """A Spark session in which nodes can be started; a context manager that ends what it started."""

    context: SparkContext
    own: bool  #: started for this run, and ended with it
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def driver_host(self) -> str:
        """The address at which executors reach the driver."""
        return driver_host(self.context)

    @property
    def driver_interface(self) -> str:
        """The address on which the driver may listen."""
        return driver_interface(self.context)

    @property
    def is_local(self) -> bool:
        return is_local(self.context)

    @property
    def is_open(self) -> bool:
        """Whether it can run jobs."""
        return self.context._jsc is not None

    def close(self) -> None:
        """Ends the session, its JVM and its files if they are ours; a user's session is not ended."""
        self._closing.close()

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(
    spark: SparkSession | SparkContext | None = None,
    *,
    master: str | None = None,
    slots_needed: int = 1,
    name: str = "seep",
    verbose: bool = False,
) -> Host:
    """Returns the user's session as a host, or a new one: at `master`, or on this machine with task slots for all.

    A new local session takes about 3 s. `verbose` does not filter Spark's log.
    """
    if spark is not None:
        return Host(_context_of(spark, master), own=False)
    if SparkContext._active_spark_context is not None:
        raise UserError("a Spark session is running in this program: pass it with spark=…, or stop it first")
    with contextlib.ExitStack() as closing:
        if master is None and _SUBMITTED in os.environ:
            context = _join(name, closing)
        else:
            context = _begin(master or f"local[{max(LOCAL_SLOTS, slots_needed)}]", name, verbose, closing)
        return Host(context, own=True, _closing=closing.pop_all())


def _context_of(spark: SparkSession | SparkContext, master: str | None) -> SparkContext:
    if master is not None:
        raise UserError("pass a session or a master, not both: a session has its master")
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise UserError(
            "this is a Spark Connect session, and nodes need the classic driver: make the session with "
            "SparkSession.builder.master(…), without remote(…), SPARK_REMOTE or spark.api.mode=connect"
        )
    context = spark if isinstance(spark, SparkContext) else spark.sparkContext
    if context._jsc is None:
        raise UserError("this Spark session has been stopped; make a new one")
    use_this_python(context)
    return context


def use_this_python(context: SparkContext) -> None:
    """Makes a local session use this Python if none is set: by default it uses `python3` on the PATH."""
    if is_local(context) and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def _join(name: str, closing: contextlib.ExitStack) -> SparkContext:
    """Makes a context in the JVM of spark-submit, with its settings."""
    with _unchanged_interrupts():
        context = SparkContext(conf=SparkConf().setIfMissing("spark.app.name", name))
    closing.callback(context.stop)
    return context


def _begin(master: str, name: str, verbose: bool, closing: contextlib.ExitStack) -> SparkContext:
    """Starts a JVM and a context in it; adds to `closing` what ends them."""
    _check_master(master)
    check_java()
    directory = make_session_directory()
    closing.callback(shutil.rmtree, directory, ignore_errors=True)
    conf = _configuration(master, name, directory, verbose)
    if SparkContext._gateway is None:
        _launch_jvm(conf, verbose, closing)
    with _unchanged_interrupts():
        context = _context_at(master, conf)
    closing.callback(context.stop)
    if _is_on_this_machine(master):
        context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return context


def _configuration(master: str, name: str, directory: Path, verbose: bool) -> SparkConf:
    """Returns our settings, except those set by the user's environment (spark-defaults, PYSPARK_SUBMIT_ARGS)."""
    conf = SparkConf().setMaster(master).setAppName(name)
    options = [*_FRUGAL_JVM, f"-Djava.io.tmpdir={directory}", *([] if verbose else [quiet_logging(directory)])]
    here = _LOCAL_SETTINGS | _READY_DAEMON if _is_on_this_machine(master) else {}
    ours = {"spark.driver.extraJavaOptions": " ".join(options), "spark.local.dir": str(directory)}
    for key, value in (_SETTINGS | here | ours).items():
        conf.setIfMissing(key, value)
    return conf


def _context_at(master: str, conf: SparkConf) -> SparkContext:
    try:
        return SparkContext(conf=conf)
    except Exception as reason:
        raise EnvironmentFault(f"Spark does not start at {master}: {reason_of_exception(reason)}") from reason


def _launch_jvm(conf: SparkConf, verbose: bool, closing: contextlib.ExitStack) -> None:
    """Starts Spark's JVM; without `verbose`, filters its stderr.

    It has a process group of its own: a Jupyter kernel that ends kills the processes of its group, and only then runs
    what would end the run and its JVM in order.
    """
    stderr_filter = None if verbose else StderrFilter()
    options: dict[str, Any] = {"process_group": 0} | ({"stderr": stderr_filter.writing} if stderr_filter else {})
    try:
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    except Exception as reason:
        said = stderr_filter.failed() if stderr_filter else str(reason)
        raise EnvironmentFault(f"Spark's JVM does not start: {said}") from reason
    if stderr_filter:
        stderr_filter.started()
        closing.callback(stderr_filter.join)
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    closing.callback(_end_jvm, gateway)


def _end_jvm(gateway: Any) -> None:
    """Ends the JVM, which pyspark would keep until this program ends, and makes pyspark forget it."""
    SparkContext._gateway = SparkContext._jvm = None
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if gateway.proc is None:
        return
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_PATIENCE)
    except Exception:
        gateway.proc.kill()
        gateway.proc.wait()


@contextlib.contextmanager
def _unchanged_interrupts() -> Iterator[None]:
    """Restores the handler of Ctrl-C: that of pyspark would cancel all jobs, and so end all nodes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _master_address(master: str) -> tuple[str, int | None]:
    """Returns host and port of a Standalone master; "" for other masters."""
    found = re.match(r"spark://([^:,]+):(\d+)", master)
    return (found[1], int(found[2])) if found else ("", None)


def _is_on_this_machine(master: str) -> bool:
    return master.startswith("local") or is_loopback(_master_address(master)[0] or "0.0.0.0")


def _check_master(master: str) -> None:
    """Raises unless Spark knows this kind of master, and a Standalone one answers; Spark itself tries for a minute."""
    if not re.match(r"local(-cluster)?(\[.*\])?$|spark://|k8s://|yarn$", master):
        raise UserError(f"there is no master {master!r}: it is local[n], spark://host:port, k8s://… or yarn")
    host, port = _master_address(master)
    if port is None or "," in master:
        return
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as reason:
        raise EnvironmentFault(
            f"no Spark master answers at {master} ({reason}); mend the address, or start it"
        ) from None
