"""`seep state … --checkpoint live`: what a running query knows, from another process's point of view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import seep
from primitives.errors import UserError
from seep.cli.app import app
from seep.inspection.live import Live
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import KEYS, committed, counting, start, wait_until


@pytest.fixture(scope="module")
def running(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Path]]:
    """Two counters that have counted all that there is, and wait for more that never comes."""
    where = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEP_HOME", str(where / "home"))
        storage = StorageSettings(location=str(where / "checkpoints"))
        options = {"rate": seep.Rate(20_000), "storage": storage, "checkpoint": None}
        with start(host, counting(), parallelism={"counter": 2}, **options) as run:
            committed(run, 20)
            yield run, where


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["state", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_state_of_a_running_query_is_looked_at_like_a_checkpoint(running: tuple[Run, Path]) -> None:
    run, _ = running
    with Live.of("counting") as live:
        assert live.operators() == ["counter"]
        assert live.component("counter").parallelism == 2
        rows = live.table("counter").to_pylist()
    assert {row["key"] for row in rows} == set(range(KEYS))
    later = run.state("counter").to_arrow().to_pylist()
    before = {row["key"]: row["count()"] for row in rows}
    assert all(row["count()"] >= before[row["key"]] for row in later)


def test_the_command_line_shows_measures_compares_and_exports_it(running: tuple[Run, Path], tmp_path: Path) -> None:
    run, where = running
    number = run.savepoint()
    committed(run, 20)
    asked = ("--query", "counting", "--operator", "counter")
    (shown,) = json.loads(said("show", *asked, "--checkpoint", "live", "--key", "key=7", "--json"))
    assert [row["key"] for row in shown["rows"]] == [7]
    (filling,) = json.loads(said("stats", *asked, "--checkpoint", "live", "--json"))
    assert filling["rows"] == KEYS
    storage = ("--storage", str(where / "checkpoints"))
    assert f"{KEYS} changed" in said("diff", str(number), "live", *storage, *asked)
    said("export", str(tmp_path / "counts.parquet"), *asked, "--checkpoint", "live")
    assert pq.read_table(tmp_path / "counts.parquet").num_rows == KEYS


def test_what_does_not_run_or_keeps_no_state_is_told(running: tuple[Run, Path]) -> None:
    wait_until(lambda: running[0].status().committed > 0)
    with pytest.raises(UserError, match=r"no run is called 'orders'; running now: .* .counting."):
        Live.of("orders")
    with pytest.raises(UserError, match="'map' keeps no state in counting; those that do: counter"):
        Live.of("counting", "map")
