"""Runs on real nodes: the four outputs are those of the reference, whatever befalls the operators meanwhile.

Each run ends its input when all has happened to it, and is compared with the reference on as much as it has read. An
hour of two expressways, by the command line and with more instances: test_acceptance.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import seep
from lrb.data.history import write_history
from lrb.data.reading import DeadLetters
from lrb.data.tables import written
from lrb.data.writing import write_outputs
from lrb.driver import answers_of, query_of_file
from lrb.query.answers import outputs
from lrb.schema import INPUT
from lrb.sources.feeder import prepare
from lrb.validation.validator import compared, expected
from seep.control.targets import passed_on
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.lrb.traffic import table, traffic
from tests.runtime.counting import committed, idle, recovered, start, wait_until

OPERATORS = ("feeder", "forwarder", "toll_calculator", "toll_assessment", "toll_collector", "balance_account", "sink")
VEHICLES = 600
#: Tuples per second, of which there are enough for a minute.
RATE = 400
#: Tuples that bring dozens of each output.
ENOUGH = 4_000


class Files(NamedTuple):
    """Some crowded traffic, as it was written and as the feeder reads it."""

    traffic: Path
    prepared: Path
    history: Path

    def first(self, tuples: int) -> Path:
        """The traffic's first tuples, in a file of their own."""
        part = self.traffic.with_name("part.csv")
        part.write_text("".join(self.traffic.read_text().splitlines(keepends=True)[:tuples]))
        return part


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("traffic")
    files = Files(folder / "traffic.csv", folder / "tuples.arrow", folder / "history.csv")
    with written(files.traffic, INPUT) as write:
        for batch in table(traffic(11, vehicles=VEHICLES, seconds=1_500)).to_batches():
            write(batch)
    write_history(files.history, VEHICLES, 3, seed=1)
    assert prepare(files.traffic, files.prepared, DeadLetters()) > 60 * RATE
    return files


@contextmanager
def running(host: Host, files: Files, out: Path, **options: Any) -> Iterator[Run]:
    query = query_of_file(files.prepared, out, files.history)
    with start(host, query, **({"rate": seep.Rate(RATE), "spare": 2} | options)) as run:
        yield run


def check(run: Run, files: Files, out: Path) -> None:
    """Ends the input of a run once there is something of each output, and compares."""
    wait_until(lambda: run.rows_read > ENOUGH)
    run.finish()
    assert run.wait(60)
    write_outputs(out, *outputs(answers_of(out)))
    findings = compared(expected(files.first(run.rows_read), files.history), out)
    assert [finding for finding in findings if not finding.is_right] == []
    assert min(finding.found for finding in findings) > 20


def test_every_operator_can_be_killed(host: Host, files: Files, tmp_path: Path) -> None:
    with running(host, files, tmp_path, nodes=4, spare=1) as run:
        left = list(OPERATORS)
        while left:
            committed(run, 20)
            idle(run)
            together = on_node_of(run, left[0])
            run.kill(left[0])
            left = [each for each in left if each not in together]
            recovered(run, len(OPERATORS) - len(left))
        committed(run, 20)
        check(run, files, tmp_path)
        assert {str(each.instance).partition("[")[0] for each in run.events.of("recovered")} == {*OPERATORS}


def on_node_of(run: Run, operator: str) -> set[str]:
    """The operators of all that lives there."""
    placed = run.placement
    node = placed[f"{operator}[0]"]
    return {instance.partition("[")[0] for instance, home in placed.items() if home == node}


@pytest.mark.acceptance
def test_operators_grow_and_shrink_and_all_slots_move(host: Host, files: Files, tmp_path: Path) -> None:
    with running(host, files, tmp_path, nodes=3) as run:
        committed(run, 20)
        run.scale("toll_calculator", 4)
        run.scale("toll_assessment", 2)
        wait_until(lambda: len(run.events.of("scaled out")) == 2)
        committed(run, 20)
        keyed = ("toll_calculator", "toll_assessment")
        migration = run.migrate({each: passed_on(each) for each in keyed}, strategy="batched", batch=64)
        handover = run.handover("balance_account[0]")
        assert migration.wait(60)
        assert handover.wait(60)
        assert migration.progress.slots_moved == 256 * len(keyed)
        run.scale("toll_calculator", 2)
        run.scale("toll_assessment", 1)
        wait_until(lambda: len(run.events.of("scaled in")) == 2)
        committed(run, 20)
        check(run, files, tmp_path)


@pytest.mark.acceptance
def test_a_run_goes_on_from_a_savepoint_at_another_parallelism(host: Host, files: Files, tmp_path: Path) -> None:
    storage = StorageSettings(location=str(tmp_path / "storage"))
    with running(host, files, tmp_path, storage=storage, nodes=2) as run:
        committed(run, 40)
        saved = run.savepoint()
        rows = run.rows_read
        committed(run, 20)  # what comes of these has to go
        run.manager_process.halt()
    more: dict[str, Any] = {"restore": str(saved), "parallelism": {"toll_calculator": 2, "forwarder": 2}, "nodes": 3}
    with running(host, files, tmp_path, storage=storage, **more) as run:
        committed(run, 60)
        check(run, files, tmp_path)
        assert run.rows_read > rows
