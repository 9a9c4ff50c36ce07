"""Imports point one way, and the pure packages stay pure: held by reading every import of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: The packages from the bottom up: a module may import its own package, and any that stands before it here.
LADDER = (
    "primitives",
    "formats",
    "policies",
    "vmpool",
    # the machines, and how they are proved
    "seep.protocol",
    "seep.rows",
    "seep.record",
    "seep.control",
    "seep.reports",
    "seep.kernel",
    "seep.simulator",
    # what a query is made of
    "seep.operators",
    "seep.sources",
    "seep.sinks",
    "seep.query",
    "seep.testing",
    # the processes of a run
    "seep.threads",
    "seep.logs",
    "seep.metrics",
    "seep.dashboard",
    "seep.storage",
    "seep.channels",
    "seep.durable",
    "seep.spark",
    "seep.node",
    "seep.driver",
    # what people have in hand
    "seep.shipped",
    "seep.deploy",
    "seep.config",
    "seep.running",
    "seep.inspection",
    "seep",
    "seep.workloads",
    "seep.cli",
    "lrb",
    "nexmark",
    "benchmarks",
)
RANK = {package: rank for rank, package in enumerate(LADDER)}
#: They are beside each other, and know nothing of each other.
APART = {"lrb", "nexmark"}
FOLDERS = tuple(package for package in LADDER if "." not in package)

SPARK_AND_SOCKETS = ("pyspark", "pyarrow.flight", "socket", "socketserver", "ssl", "asyncio", "http", "urllib.request")
THREADS = ("threading", "_thread", "concurrent", "multiprocessing", "subprocess", "queue")
CLOCK_AND_CHANCE = ("time", "datetime", "random", "secrets", "uuid")
PICKLE = ("pickle", "cloudpickle", "dill", "marshal", "shelve")

#: What drives the machines.
SHELLS = ("seep.kernel", "seep.simulator", "seep.testing", "seep.node", "seep.driver", "seep.running", "seep.cli")

#: What a package, with all below it, must not import, and why.
FORBIDDEN = [
    *((name, SPARK_AND_SOCKETS, "it is pure: no Spark, no sockets") for name in ("primitives", "formats", "policies")),
    ("seep.protocol", SPARK_AND_SOCKETS + THREADS, "it is sans-IO: no Spark, no sockets, no threads"),
    ("seep.control", SPARK_AND_SOCKETS + THREADS, "it is sans-IO: no Spark, no sockets, no threads"),
    ("seep.record", SPARK_AND_SOCKETS, "it is sans-IO: no Spark, no sockets"),
    *(
        (package, CLOCK_AND_CHANCE, "it is deterministic: a shell hands it the time, nothing is drawn")
        for package in ("seep.protocol", "seep.record", "seep.control")
    ),
    *((package, PICKLE, "loading state or messages must never run code from them") for package in FOLDERS),
]


def within(name: str, package: str) -> bool:
    """Whether the dotted `name` is `package` or lies below it."""
    return name == package or name.startswith(package + ".")


def imports_of(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Dotted names that `source` imports anywhere, inside functions too, relative ones resolved against `module`.

    `from a import b` yields `a` and `a.b`, for `b` may be a module; so does a literal `import_module("a.b")`.
    """
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=origin, names=names, level=level):
                base = resolve_name("." * level + (origin or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in names))
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Every import of `source` that breaks a rule, in words; empty when all is well."""
    return [
        f"{module} imports {name}: {reason}"
        for name in dict.fromkeys(imports_of(source, module, is_package=is_package))
        for reason in broken_rules(module, name)
    ]


def package_of(module: str) -> str:
    """The package on the ladder that a module belongs to; of `seep`, those directly below it."""
    own = ".".join(module.split(".")[:2])
    return own if own.startswith("seep.") and (ROOT / own.replace(".", "/")).is_dir() else module.split(".")[0]


def broken_rules(module: str, imported: str) -> Iterator[str]:
    """The reasons why `module` must not import `imported`."""
    own, other = package_of(module), package_of(imported)
    if other.split(".")[0] in FOLDERS and other != own:
        if other not in RANK or own not in RANK:
            yield f"{other if own in RANK else own} has no rank; give it one on the ladder"
        elif RANK[other] > RANK[own] or {own, other} == APART:
            yield f"{other} stands above {own} on the ladder, or beside it"
    if within(module, "seep.record") and any(within(imported, shell) for shell in (*SHELLS, "seep.control")):
        yield "the record is told what it knows; it asks nobody"
    if within(module, "seep.control") and any(within(imported, shell) for shell in SHELLS):
        yield "the shells drive the steward; it knows none of them"
    for package, names, reason in FORBIDDEN:
        if within(module, package) and any(within(imported, name) for name in names):
            yield reason


def modules() -> Iterator[tuple[Path, str, bool]]:
    """Path, dotted name and whether it is a package, of every module of the project."""
    for path in sorted(path for package in FOLDERS for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


MODULES = list(modules())


@pytest.mark.parametrize(("path", "module", "is_package"), MODULES, ids=[name for _, name, _ in MODULES])
def test_a_module_imports_only_what_its_layer_allows(path: Path, module: str, is_package: bool) -> None:
    assert violations(path.read_text(encoding="utf-8"), module, is_package=is_package) == []


def test_every_layer_is_looked_at() -> None:
    seen = {name for _, name, _ in MODULES}
    assert seen >= {*RANK, "primitives.errors"} - {"benchmarks"}


def test_every_package_has_a_rank() -> None:
    assert {package_of(name) for _, name, _ in MODULES} <= RANK.keys()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("primitives.slots", "import seep"),
        ("primitives.slots", "from policies.balance import Balance"),
        ("primitives.slots", "def lazily():\n    import vmpool.pool"),
        ("primitives.slots", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lrb import query"),
        ("primitives.slots", "import pyspark.sql"),
        ("primitives.slots", "from pyarrow import flight"),
        ("primitives.slots", "import pyarrow.flight as transport"),
        ("primitives.state.frame", "from socket import create_connection"),
        ("policies.balance", "from importlib import import_module\nimport_module('vmpool.pool')"),
        ("policies.balance", "__import__('pyspark')"),
        ("lrb.query", "import nexmark.generator"),
        ("nexmark.queries", "import benchmarks.harness"),
        ("seep.protocol.manager.manager", "from ...simulator import schedule"),
        ("seep.protocol.manager.manager", "from ... import simulator"),
        ("seep.protocol.manager.manager", "import threading"),
        ("seep.control.steward", "import threading"),
        ("seep.control.steward", "from seep.driver import driver"),
        ("seep.operators.base", "from seep.query import times"),
        ("seep.query.query", "def launch():\n    from seep.running.run import launch"),
        ("seep.channels.port", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from seep.node import node"),
        ("seep.spark.session", "from importlib import import_module\nimport_module('seep.driver.driver')"),
        ("seep.running.stateful", "from seep.cli.flags import Flags"),
        ("seep.sinks.formats", "from seep import sources"),
        ("lrb.cli", "from nexmark import cli"),
        ("seep.record.record", "from time import monotonic"),
        ("seep.record.record", "from seep.control import steward"),
        ("seep.protocol.manager.manager", "from concurrent.futures import ThreadPoolExecutor"),
        ("seep.protocol.manager.manager", "from time import monotonic"),
        ("seep.storage.files", "import pickle"),
    ],
)
def test_a_forbidden_import_is_caught(module: str, source: str) -> None:
    assert violations(source, module) != []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("primitives.slots", "import pyarrow as pa\nimport numpy as np\nfrom primitives.errors import UserError"),
        ("policies.balance", "from primitives.slots import SlotSet"),
        (
            "seep.protocol.manager.manager",
            "from .messages import Tick\nfrom . import messages\nfrom primitives import slots",
        ),
        ("seep.simulator.schedule", "import random\nfrom ..protocol import manager"),
        ("seep.node.node", "import threading\nimport pyarrow.flight\nimport vmpool.pool"),
        ("nexmark.queries", "import seep\nimport timeit"),
    ],
)
def test_an_allowed_import_is_let_through(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_a_relative_import_in_a_package_counts_from_the_package_itself() -> None:
    source = "from .simulator import schedule"
    assert list(imports_of(source, "seep", is_package=True)) == ["seep.simulator", "seep.simulator.schedule"]
    assert list(imports_of(source, "seep.cli")) == ["seep.simulator", "seep.simulator.schedule"]
