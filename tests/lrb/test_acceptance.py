"""An hour of two expressways by `seep lrb run`: its four outputs are those of the reference, whatever happens.

Some millions of tuples and a few minutes: `python -m pytest -m acceptance tests/lrb/test_acceptance.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lrb.data.history import read_history, write_history
from lrb.data.tables import written
from lrb.generator import TrafficSettings, gathered, traffic
from lrb.schema import INPUT
from lrb.validation.reference import Answers, Tuple, answers, history_of
from lrb.validation.validator import compared
from tests.cli.test_wordcount import seep

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1_200)]

HOUR = TrafficSettings(xways=2, seconds=3_600, seed=8)
OPERATORS = ("feeder", "forwarder", "toll_calculator", "toll_assessment", "toll_collector", "balance_account", "sink")
KEYED = ("toll_calculator", "toll_assessment")
#: Tuples per second, so that a run takes about 80 seconds: a busy machine needs some for what happens meanwhile.
RATE = "50k"


class Hour(NamedTuple):
    traffic: Path
    history: Path
    expected: Answers


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Hour:
    folder = tmp_path_factory.mktemp("hour")
    path, history = folder / "traffic.csv", folder / "history.csv"
    vehicles = 0
    with written(path, INPUT) as write:
        for batch in gathered(traffic(HOUR), 1 << 17):
            write(batch)
            vehicles = max(vehicles, max(batch["vid"].to_pylist()))
    write_history(history, vehicles, HOUR.xways, HOUR.seed)
    return Hour(path, history, _expected(path, history))


def _expected(path: Path, history: Path) -> Answers:
    """Worked out from the text of the file, by nothing that a run uses."""
    with path.open() as lines:
        tuples = [Tuple(*map(int, line.split(","))) for line in lines]
    asked = {(each.vid, each.day, each.xway) for each in tuples if each.type == 3}
    return answers(tuples, history_of(_tolls(history), asked))


def _tolls(history: Path) -> Any:
    for batch in read_history(history).to_batches(max_chunksize=1 << 16):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def run(hour: Hour, out: Path, *options: str) -> dict[str, Any]:
    """Runs it to its end; its report, if all outputs are right."""
    report = out.with_suffix(".json")
    common = ("--input", str(hour.traffic), "--history", str(hour.history), "--out", str(out), "--report", str(report))
    with seep("lrb", "run", *common, "--rate", RATE, "--checkpoint", "2s", *options) as command:
        output, _ = command.process.communicate(timeout=900)
    assert command.process.returncode == 0, output[-5_000:]
    findings = compared(hour.expected, out)
    assert [finding for finding in findings if not finding.is_right] == []
    assert min(finding.found for finding in findings) > 1_000
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_alone(hour: Hour, tmp_path: Path) -> None:
    assert run(hour, tmp_path / "out")["summary"]["recoveries"] == []


def test_every_operator_is_killed_once(hour: Hour, tmp_path: Path) -> None:
    chaos = ",".join(f"kill:{operator}@{5 + 6 * at}s" for at, operator in enumerate(OPERATORS))
    report = run(hour, tmp_path / "out", "--chaos", chaos, "--spare", "2")
    recovered = {each["instance"].partition("[")[0] for each in report["summary"]["recoveries"]}
    assert recovered == {*OPERATORS}


def test_the_keyed_operators_grow_to_four_and_shrink_to_two(hour: Hour, tmp_path: Path) -> None:
    chaos = ",".join(f"scale:{operator}={to}@{at}s" for to, at in ((4, 8), (2, 40)) for operator in KEYED)
    report = run(hour, tmp_path / "out", "--chaos", chaos)
    scalings = [(each["operator"], each["before"], each["after"]) for each in report["summary"]["scalings"]]
    assert sorted(scalings) == sorted((operator, *sizes) for operator in KEYED for sizes in ((1, 4), (4, 2)))


def test_all_slots_migrate(hour: Hour, tmp_path: Path) -> None:
    moves = [f"migrate:{operator}=batched@10s" for operator in KEYED] + ["handover:balance_account[0]@10s"]
    parallelism = [option for operator in KEYED for option in ("--parallelism", f"{operator}=2")]
    report = run(hour, tmp_path / "out", "--chaos", ",".join(moves), *parallelism)
    moved = [sum(step["slots"] for step in each["timeline"]) for each in report["migrations"]]
    assert moved == [256] * 3


def test_it_goes_on_from_a_savepoint(hour: Hour, tmp_path: Path) -> None:
    common = ("--input", str(hour.traffic), "--history", str(hour.history), "--out", str(tmp_path / "out"))
    storage = ("--storage", str(tmp_path / "storage"))
    with seep("lrb", "run", *common, *storage, "--rate", RATE, "--checkpoint", "2s") as first:
        first.lines_until("  15.")  # seconds
        run_id = _run_of(first.process.pid)
        with seep("stop", run_id, "--savepoint") as stopping:
            code, said = stopping.end()
        assert code == 0, said
        _, output = first.end()
    assert "savepoint" in output
    assert not (tmp_path / "out" / "tolls.csv").exists()
    run(hour, tmp_path / "out", *storage, "--restore", "latest", "--parallelism", "toll_calculator=3")


def _run_of(pid: int) -> str:
    """The id of the run of a process."""
    from seep.running.remote_control import listed

    return next(each.id for each in listed() if each.process.pid == pid)
