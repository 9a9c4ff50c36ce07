"""The first step of a node, where the project's packages may be missing: it finds or unpacks them.

This module is sent by value with Spark's closures, so it imports only the standard library, and pyspark inside
functions. Everything else is imported after `make_importable`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shutil
import socket
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

#: Linux's prctl option to get a signal when the parent process dies.
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


class Shipment(NamedTuple):
    """The driver's packages, and how a node gets them."""

    packages: tuple[str, ...]
    digest: str  #: over all their files
    archive: str | None  #: the name of a zip of them among Spark's files; None if the driver's own are reachable
    paths: tuple[str, ...]  #: the driver's module path; empty if it is on another host
    requires: tuple[str, ...]  #: third-party modules that they need


def node_task(shipment: Shipment, payload: bytes, *arguments: Any) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Returns the function of a node's only task, which calls the pickled `payload` with the arguments.

    It does not read its input. Therefore Spark does not use the process again, so the end of a node ends its process,
    with its threads, its port and its memory.
    """

    def task(_rows: Iterable[Any]) -> Iterable[Any]:
        die_with_parent()
        make_importable(shipment)
        unpacked(payload)(*arguments)
        return ()

    return task


def arrow_task(shipment: Shipment, payload: bytes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for `DataFrame.mapInArrow`, which calls the pickled `payload` with a partition's batches."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        make_importable(shipment)
        yield from unpacked(payload)(batches)

    return task


def unpacked(payload: bytes) -> Callable[..., Any]:
    from pyspark import cloudpickle

    function: Callable[..., Any] = cloudpickle.loads(payload)
    return function


def die_with_parent() -> None:
    """Makes this worker, even if stopped, die with Spark's Python daemon, so that no node outlives its executor."""
    started_by = getattr(sys.modules.get("__main__"), "__spec__", None)
    if sys.platform != "linux" or not started_by or not started_by.name.endswith("daemon"):
        return  # without a daemon the parent is a thread of the JVM, which may end earlier
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def make_importable(shipment: Shipment) -> None:
    """Puts the driver's packages on the module path, unless the same packages are installed."""
    sys.path.extend(path for path in shipment.paths if path not in sys.path)
    if shipment.archive is not None and not installed(shipment):
        from pyspark import SparkFiles

        forget(shipment.packages)
        sys.path.insert(0, unpack(SparkFiles.get(shipment.archive), SparkFiles.getRootDirectory(), shipment.digest))
        importlib.invalidate_caches()
    check_required(shipment.requires)
    let_numba_cache(shipment.packages)


def installed(shipment: Shipment) -> bool:
    """Whether an import here finds the same packages as in the driver, file by file."""
    roots = [(package, root) for package in shipment.packages if (root := root_of(package))]
    return len(roots) == len(shipment.packages) and digest_of(roots) == shipment.digest


def root_of(package: str) -> str | None:
    """Returns the directory of a package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return places[0] if places and os.path.isdir(places[0]) else None


def files_of(root: str) -> list[str]:
    """Returns the relative paths of a package's files, sorted, without caches."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found.extend(os.path.relpath(os.path.join(folder, name), root) for name in names if not name.endswith(".pyc"))
    return sorted(found)


def digest_of(roots: Iterable[tuple[str, str]]) -> str:
    """Returns a hash of names and contents of the packages' files; takes a few milliseconds."""
    digest = hashlib.sha256()
    for package, root in roots:
        for name in files_of(root):
            with open(os.path.join(root, name), "rb") as file:
                content = file.read()
            digest.update(f"{package}/{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def unpack(archive: str, directory: str, digest: str) -> str:
    """Unpacks the archive to its own directory, which exists completely or not at all; returns its path.

    It is unpacked because Numba cannot store compiled code inside a zip. Several workers may do this at once: the
    first to finish wins.
    """
    target = os.path.join(directory, f"seep-packages-{digest}")
    if not os.path.isdir(target):
        unfinished = f"{target}.{os.getpid()}"
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(unfinished)
        try:
            os.rename(unfinished, target)
        except OSError:
            shutil.rmtree(unfinished)
    return target


def forget(packages: Sequence[str]) -> None:
    """Drops imported modules of other versions: the worker may have served another run before."""
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def check_required(modules: Iterable[str]) -> None:
    """Raises ImportError that names the host and its missing modules."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{_host()} lacks the Python packages {', '.join(missing)}: install them there, "
            "or set PYSPARK_PYTHON to a Python that has them"
        )


def let_numba_cache(packages: Sequence[str]) -> None:
    """Lets Numba store compiled code among Spark's files, if it can store it neither by the source nor in the home."""
    from pyspark import SparkFiles

    roots = [root for root in map(root_of, packages) if root]
    if not all(os.access(place, os.W_OK) for place in roots) and not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(SparkFiles.getRootDirectory(), "numba"))


def _host() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    return f"host {socket.gethostname()} (Python {version} at {sys.executable})"
