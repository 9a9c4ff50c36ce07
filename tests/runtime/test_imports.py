"""networkx, which takes 0.3 s to import, is loaded where it is used: not in nodes, nor by the command line's help."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import seep
from seep.node.daemon import PREPARED
from seep.spark.session import Host
from seep.spark.shipping import REQUIRES
from tests.runtime.counting import SCHEMA, numbers, start


def modules_after(*imported: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after these imports."""
    program = f"import sys, {', '.join(imported)}; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return {name.partition(".")[0] for name in said.split()}


@pytest.mark.parametrize("imported", [PREPARED, ("seep.cli.app",)], ids=["node", "command line"])
def test_networkx_is_not_imported_before_it_is_used(imported: tuple[str, ...]) -> None:
    modules = modules_after(*imported)
    assert "numpy" in modules or "typer" in modules
    assert "networkx" not in modules


def test_an_executor_needs_no_networkx() -> None:
    assert "networkx" not in REQUIRES


def loaded(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"networkx": pa.array(["networkx" in sys.modules] * len(batch), pa.bool_())}


def test_a_node_runs_a_query_without_networkx(host: Host) -> None:
    query = seep.Query("imports")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=1_000))
    counted = source.map("loaded", loaded).key_by("networkx").aggregate("counter", n=seep.count(), emit="end")
    counted.sink("out", seep.sinks.collect())
    with start(host, query) as run:
        assert run.wait(120)
    assert run.result("out").to_pylist() == [{"networkx": False, "n": 1_000}]
