"""Preflight: checks of the environment before a run starts; a check that fails says what to do."""

from __future__ import annotations

import enum
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyspark

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.spark import namesakes
from seep.spark.address import driver_interface
from seep.spark.capacity import Capacity, await_capacity
from seep.spark.java import check_java
from seep.spark.reason import reason_of_exception
from seep.spark.shipping import REQUIRES, is_local

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

OLDEST_PYSPARK = 4
#: The memory of a node with little state, and the free disk space that a run should have to spill to.
NODE_MEMORY = 256 << 20
SPILL_SPACE = 1 << 30


#: Seconds to wait for executors to start, or for task slots of this machine to become free.
_LOCAL_WAIT, _CLUSTER_WAIT = 1.0, 30.0


class PreflightVerdict(enum.Enum):
    OK = "ok"
    WARN = "warn"  #: it will run, perhaps not as expected
    FAIL = "fail"


class PreflightCheck(NamedTuple):
    """A check: its name, its verdict, and a text that says what was found or what to do."""

    name: str
    verdict: PreflightVerdict
    text: str


def before_start(nodes: int, directory: str | None = None) -> Iterator[PreflightCheck]:
    """Makes the checks without Spark, before a session starts on this machine."""
    yield _run_check("packages", check_packages)
    yield _run_check("Java", check_java)
    yield _run_check("pyspark", lambda: check_pyspark(pyspark.__version__))
    yield _run_check("memory", lambda: check_memory(nodes, available_memory()))
    yield _run_check("disk", lambda: check_disk(directory or tempfile.gettempdir()))


def of_session(
    context: SparkContext, nodes: int, *, wait: float | None = None, settled: float = 0.0
) -> Iterator[PreflightCheck]:
    """Checks a session for `nodes` nodes; waits up to `wait` seconds for executors that are starting.

    With `settled`, it waits until none has started for that many seconds, so that it counts all executors.
    """
    conf = context.getConf()
    here = is_local(context)
    wait, settled = (_LOCAL_WAIT if here else _CLUSTER_WAIT) if wait is None else wait, 0.0 if here else settled
    slots = partial(await_capacity, context, nodes, wait, settled)
    yield _run_check("task slots", lambda: check_slots(slots(), nodes, is_dynamic(conf)))
    yield _run_check("settings", lambda: check_settings(conf))
    yield _run_check("Python", lambda: check_python(probe(context)))
    yield _run_check("port", lambda: check_port(driver_interface(context)))


def raise_first(checks: Iterable[PreflightCheck]) -> None:
    """Raises EnvironmentFault with the text of the first check that failed, if one did."""
    for check in checks:
        if check.verdict is PreflightVerdict.FAIL:
            raise EnvironmentFault(f"{check.name}: {check.text}")


class PreflightWarning(SeepError):
    """Raised by a check to give a warning."""


def _run_check(name: str, check: Callable[[], str]) -> PreflightCheck:
    try:
        return PreflightCheck(name, PreflightVerdict.OK, check())
    except PreflightWarning as doubt:
        return PreflightCheck(name, PreflightVerdict.WARN, str(doubt))
    except (EnvironmentFault, UserError) as fault:
        return PreflightCheck(name, PreflightVerdict.FAIL, str(fault))


# -- this machine -----------------------------------------------------------------------------------------------------


def check_packages() -> str:
    """Checks that imports find our packages, because their names are common."""
    if found := namesakes.foreign():
        raise EnvironmentFault("; ".join(found))
    if others := namesakes.sharing():
        raise PreflightWarning(
            f"ours, but {', '.join(others)} lies in the same directory: to install or remove it breaks seep"
        )
    return f"ours, in {namesakes.HOME}"


def check_pyspark(version: str) -> str:
    """Checks the version of pyspark.

    >>> check_pyspark("4.0.1")
    'pyspark 4.0.1'
    """
    if int(version.partition(".")[0]) < OLDEST_PYSPARK:
        raise EnvironmentFault(f"pyspark is {version}; {OLDEST_PYSPARK}.0 or newer is needed: pip install -U pyspark")
    return f"pyspark {version}"


def available_memory() -> int | None:
    """Returns the bytes of memory that are available here; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")), None)


def check_memory(nodes: int, available: int | None) -> str:
    """Checks that there is memory for `nodes` nodes.

    >>> check_memory(4, 8 << 30)
    '8.0 GiB free'
    """
    if available is None:
        raise PreflightWarning("it is not known how much memory is free here")
    needed = nodes * NODE_MEMORY
    if available < needed:
        raise PreflightWarning(
            f"{_gib(available)} free, and {nodes} nodes take {_gib(needed)} or more; ask for fewer (--nodes)"
        )
    return f"{_gib(available)} free"


def check_port(interface: str) -> str:
    """Checks that a port can be opened on the interface that nodes or driver will listen on."""
    family = socket.AF_INET6 if ":" in interface else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((interface, 0))
    except OSError as reason:
        raise EnvironmentFault(
            f"no port can be opened on {interface} ({reason}); set SPARK_LOCAL_IP or spark.driver.bindAddress "
            "to an address of this machine"
        ) from None
    return f"can listen on {interface}"


def check_disk(directory: str) -> str:
    """Checks that the directory for spilled state is writable, and has free space."""
    if not os.access(directory, os.W_OK):
        raise EnvironmentFault(f"{directory} cannot be written; set TMPDIR to a directory that can")
    free = shutil.disk_usage(directory).free
    if free < SPILL_SPACE:
        raise PreflightWarning(
            f"{directory} has {_gib(free)} left for state that does not fit in memory; set TMPDIR to more room"
        )
    return f"{_gib(free)} free in {directory}"


# -- the session ------------------------------------------------------------------------------------------------------


def is_dynamic(conf: SparkConf) -> bool:
    """Whether Spark adds and removes executors by demand."""
    return _is_true(conf, "spark.dynamicAllocation.enabled")


def check_slots(found: Capacity, nodes: int, dynamic: bool) -> str:
    """Checks that there are task slots for `nodes` nodes.

    >>> check_slots(Capacity(executors=2, slots=8, busy=1), 4, dynamic=False)
    '8 task slots on 2 executors, 1 busy, 7 free'
    """
    if found.free >= nodes:
        return str(found)
    if dynamic:
        raise PreflightWarning(f"{found}; {nodes} nodes need one each, and have to wait until Spark has allocated more")
    raise EnvironmentFault(
        f"{found}; {nodes} nodes need one each: ask for fewer (--nodes, --parallelism), end other jobs, "
        "or give the session more cores (for a local one: master local[64])"
    )


def check_settings(conf: SparkConf) -> str:
    """Checks Spark's settings for those that would harm nodes, which are long-running tasks."""
    if int(conf.get("spark.task.cpus", "1") or 1) > 1:
        raise PreflightWarning(
            f"spark.task.cpus is {conf.get('spark.task.cpus')}: every node takes so many cores; 1 is enough"
        )
    if _is_true(conf, "spark.python.worker.killOnIdleTimeout"):
        raise EnvironmentFault("spark.python.worker.killOnIdleTimeout ends nodes, which are silent for Spark; unset it")
    if conf.get("spark.speculation.task.duration.threshold", None) and _is_true(conf, "spark.speculation"):
        raise PreflightWarning(
            "spark.speculation.task.duration.threshold has Spark run second copies of nodes: harmless but idle"
        )
    if any(key.startswith("spark.task.resource.") for key, _ in conf.getAll()):
        raise PreflightWarning("spark.task.resource… has every node hold a resource such as a GPU, and nodes need none")
    if conf.get("spark.executor.pyspark.memory", None):
        raise PreflightWarning(
            "spark.executor.pyspark.memory limits each node's memory; it fails when its state outgrows that"
        )
    return "nothing in Spark's settings stands in the way"


class PreflightFinding(NamedTuple):
    """The Python in which nodes will run, as seen by a task."""

    host: str
    version: str
    missing: tuple[str, ...]


def probe(context: SparkContext) -> PreflightFinding:
    """Runs one small task, on any executor."""
    look = _inspect_python(REQUIRES if not is_local(context) else ())
    try:
        return PreflightFinding(*context.parallelize([None], 1).map(look).collect()[0])
    except Exception as error:
        raise EnvironmentFault(f"no Python task runs: {reason_of_exception(error)}") from error


def _inspect_python(required: tuple[str, ...]) -> Callable[[Any], tuple[str, str, tuple[str, ...]]]:
    """Returns a function for the task, which needs none of our packages."""

    def look(_: Any) -> tuple[str, str, tuple[str, ...]]:
        import importlib.util
        import platform
        import socket

        missing = tuple(name for name in required if importlib.util.find_spec(name) is None)
        return socket.gethostname(), platform.python_version(), missing

    return look


def check_python(found: PreflightFinding) -> str:
    """Checks the Python in which nodes will run.

    >>> check_python(PreflightFinding("worker-1", "3.11.2", ()))
    'Python 3.11.2 on worker-1 has all that nodes need'
    """
    if found.missing:
        raise EnvironmentFault(
            f"Python {found.version} on {found.host} lacks {', '.join(found.missing)}: install them there, "
            "or set PYSPARK_PYTHON to a Python that has them"
        )
    return f"Python {found.version} on {found.host} has all that nodes need"


def _is_true(conf: SparkConf, key: str) -> bool:
    return (conf.get(key, "false") or "").lower() == "true"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
