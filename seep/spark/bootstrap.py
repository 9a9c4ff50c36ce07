"""The first thing a node does, where the project's packages may not be there yet: it finds or unpacks them.

This module travels by value with Spark's closures, so it stands alone: the standard library, and pyspark inside
functions. Everything else is imported only after `make_importable`.
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

#: What Linux calls "send me this signal when my parent dies".
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


class Shipment(NamedTuple):
    """The packages as the driver has them, and how to come by them."""

    packages: tuple[str, ...]
    digest: str  #: over all their files
    archive: str | None  #: a zip of them among Spark's files; None where the driver's own are within reach
    paths: tuple[str, ...]  #: where they are, and all else that the driver finds; none if that is on another host
    requires: tuple[str, ...]  #: modules of others that they cannot do without


def node_task(shipment: Shipment, payload: bytes, *arguments: Any) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """The function of the one task of a node's job: `payload`, pickled, is called with the arguments.

    It leaves its input unread. Spark takes that as a sign not to use the process again, so a node that is done takes
    its process with it, and with that its threads, its port and its memory.
    """

    def task(_rows: Iterable[Any]) -> Iterable[Any]:
        die_with_parent()
        make_importable(shipment)
        unpacked(payload)(*arguments)
        return ()

    return task


def arrow_task(shipment: Shipment, payload: bytes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `DataFrame.mapInArrow`: `payload`, pickled, is called with the batches of a partition."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        make_importable(shipment)
        yield from unpacked(payload)(batches)

    return task


def unpacked(payload: bytes) -> Callable[..., Any]:
    from pyspark import cloudpickle

    function: Callable[..., Any] = cloudpickle.loads(payload)
    return function


def die_with_parent() -> None:
    """If Spark's Python daemon dies, so does this worker, even a stopped one: no node outlives its executor."""
    started_by = getattr(sys.modules.get("__main__"), "__spec__", None)
    if sys.platform != "linux" or not started_by or not started_by.name.endswith("daemon"):
        return  # without a daemon the parent is a thread of the JVM, and threads come and go
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def make_importable(shipment: Shipment) -> None:
    """Puts the very packages that the driver has on the module path, unless they are on it already."""
    sys.path.extend(path for path in shipment.paths if path not in sys.path)
    if shipment.archive is not None and not installed(shipment):
        from pyspark import SparkFiles

        forget(shipment.packages)
        sys.path.insert(0, unpack(SparkFiles.get(shipment.archive), SparkFiles.getRootDirectory(), shipment.digest))
        importlib.invalidate_caches()
    check_required(shipment.requires)
    let_numba_cache(shipment.packages)


def installed(shipment: Shipment) -> bool:
    """Whether an import here gives the packages that the driver has, file for file."""
    roots = [(package, root) for package in shipment.packages if (root := root_of(package))]
    return len(roots) == len(shipment.packages) and digest_of(roots) == shipment.digest


def root_of(package: str) -> str | None:
    """The directory of a package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return places[0] if places and os.path.isdir(places[0]) else None


def files_of(root: str) -> list[str]:
    """The files of a package that belong to it, relative and sorted: no caches."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found.extend(os.path.relpath(os.path.join(folder, name), root) for name in names if not name.endswith(".pyc"))
    return sorted(found)


def digest_of(roots: Iterable[tuple[str, str]]) -> str:
    """A hash over names and contents of the packages' files; a few milliseconds."""
    digest = hashlib.sha256()
    for package, root in roots:
        for name in files_of(root):
            with open(os.path.join(root, name), "rb") as file:
                content = file.read()
            digest.update(f"{package}/{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def unpack(archive: str, directory: str, digest: str) -> str:
    """The archive's content in a directory of its own, which is there as a whole or not at all.

    Unpacked, because Numba cannot keep compiled code inside a zip. Several workers may do this at once: the first to
    finish wins.
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
    """Drops what was imported of other versions: a worker may have served another run before."""
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def check_required(modules: Iterable[str]) -> None:
    """ImportError naming the host and all that it lacks."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{_host()} lacks the Python packages {', '.join(missing)}: install them there, "
            "or set PYSPARK_PYTHON to a Python that has them"
        )


def let_numba_cache(packages: Sequence[str]) -> None:
    """Numba keeps compiled code beside the source, or in the user's home; failing both, now among Spark's files."""
    from pyspark import SparkFiles

    roots = [root for root in map(root_of, packages) if root]
    if not all(os.access(place, os.W_OK) for place in roots) and not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(SparkFiles.getRootDirectory(), "numba"))


def _host() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    return f"host {socket.gethostname()} (Python {version} at {sys.executable})"
