"""Shipping: sends the project's packages to executors that do not have them, once per session and content."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from seep.spark import bootstrap
from seep.spark.bootstrap import Shipment, digest_of, files_of, root_of
from seep.spark.namesakes import PACKAGES

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Third-party modules that every node imports.
REQUIRES = ("numpy", "pyarrow", "numba", "msgpack")
#: All entries of the archive have the same date, so that the same packages make the same archive.
_DATE = (1980, 1, 1, 0, 0, 0)


def ship(context: SparkContext) -> Shipment:
    """Makes the packages available to all tasks of the session; returns how a node gets them.

    A local session uses the driver's own packages. Others get a zip of about 0.3 MB among Spark's files, which
    executors fetch once; those that have the same packages installed do not unpack it.
    """
    roots = [(package, root) for package in PACKAGES if (root := root_of(package))]
    names = tuple(package for package, _ in roots)
    digest = digest_of(roots)
    if is_local(context):
        return Shipment(names, digest, None, tuple(map(os.path.abspath, sys.path)), REQUIRES)
    return Shipment(names, digest, _add_archive(context, roots, digest), (), REQUIRES)


def ship_to_path(context: SparkContext) -> None:
    """Puts the packages on the module path of Spark's Python processes, if a small task shows that they are missing.

    This is for code that Spark itself calls by name, such as data sources; nodes use `bootstrap`.
    """
    from pyspark import SparkFiles

    if all(context.parallelize(["seep"], 1).map(find_spec).map(bool).collect()):
        return
    roots = [(package, root) for package in PACKAGES if (root := root_of(package))]
    archive = _add_archive(context, roots, digest_of(roots))
    if archive not in (context._python_includes or ()):
        context.addPyFile(str(Path(SparkFiles.getRootDirectory()) / "packages" / archive))


def is_local(context: SparkContext) -> bool:
    """Whether driver and executor are one JVM on this machine."""
    return re.fullmatch(r"local(\[.*\])?", context.master or "") is not None


def _add_archive(context: SparkContext, roots: list[tuple[str, str]], digest: str) -> str:
    """Adds the archive to Spark's files and returns its name; Spark removes it with the session."""
    from pyspark import SparkFiles

    directory = Path(SparkFiles.getRootDirectory()) / "packages"
    directory.mkdir(exist_ok=True)
    path = directory / f"seep-{digest}.zip"
    if not path.exists():
        write_archive(path, roots)
        context.addFile(str(path))
    return path.name


def write_archive(path: Path, roots: list[tuple[str, str]]) -> None:
    """Writes a zip of the packages; the same bytes for the same content."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package, root in roots:
            for name in files_of(root):
                entry = zipfile.ZipInfo(f"{package}/{name}", _DATE)
                archive.writestr(entry, (Path(root) / name).read_bytes(), zipfile.ZIP_DEFLATED)


def packed(function: object, by_value: Iterable[ModuleType] = ()) -> bytes:
    """Pickles a function with its closure, as Spark does; nothing else is ever pickled.

    Functions and classes of the given modules are pickled by value, so the receiver need not be able to import them.
    """
    from pyspark import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    modules = [module for module in by_value if module.__name__ not in known]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        return bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def loose_modules() -> list[ModuleType]:
    """Returns the modules of this program that are not installed: a user's own, which executors cannot import."""
    installed = {Path(path).resolve() for name, path in sysconfig.get_paths().items() if name.endswith("lib")}
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] not in PACKAGES]
    return [module for module in modules if (file := _file_of(module)) and not installed.intersection(file.parents)]


def _file_of(module: ModuleType) -> Path | None:
    """Returns the source file of a module; None for built-in modules, and for `__main__`, which is pickled by value."""
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file and getattr(module, "__spec__", None) is not None else None


def travel_by_value() -> None:
    """Makes `bootstrap` be pickled by value in every closure that uses it, so that the receiver need not import it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(bootstrap)  # type: ignore[no-untyped-call]
