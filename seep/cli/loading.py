"""Loads the query named by `module:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from primitives.errors import UserError

if TYPE_CHECKING:
    from seep.query.query import Query


def load_query(target: str) -> Query:
    """Returns the query called `name` in a module or a Python file; `name` may also be a function without parameters.

    Modules in the working directory are found too. The module is sent to the nodes with the query; modules of yours
    that it imports must be there already, unless the nodes are on this machine.
    """
    from seep.query.query import Query

    place, colon, name = target.rpartition(":")
    if not (place and colon and name.isidentifier()):
        raise UserError(f"{target!r} names no query; write module:query, such as examples.wordcount:query")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    _send_by_value(module)
    found = getattr(module, name, None)
    query = found() if callable(found) and not isinstance(found, Query) else found
    if not isinstance(query, Query):
        known = [each for each, value in vars(module).items() if isinstance(value, Query)]
        hint = f"its queries are {', '.join(known)}" if known else "it has no queries"
        raise UserError(f"{name!r} in {place} is not a query, or a function that returns one; {hint}")
    return query


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as reason:
        if reason.name is None or not (name == reason.name or name.startswith(f"{reason.name}.")):
            raise UserError(f"module {name} needs {reason.name}, which is not installed") from reason
        raise UserError(f"there is no module {name}, neither installed nor in {Path.cwd()}") from reason


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    sys.path.insert(0, str(path.absolute().parent))
    return _import_module(path.stem)


def _send_by_value(module: ModuleType) -> None:
    """Makes the module's definitions be sent to the nodes by value, as they may not have the module."""
    from pyspark import cloudpickle

    if module.__name__.partition(".")[0] not in ("seep", "lrb", "nexmark"):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
