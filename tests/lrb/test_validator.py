"""The validator and the files around it: what is written is read again, and what is wrong with it is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lrb.data.history import DAYS, DefaultHistory, StoredHistory, history_of, read_history, write_history
from lrb.data.reading import DeadLetters, read
from lrb.data.writing import OUTPUTS, write_outputs
from lrb.generator import TrafficSettings, traffic
from lrb.schema import ALERTS, BALANCES, EXPENDITURES, HISTORY, INPUT, TOLLS
from lrb.validation.reference import Answers, Tuple, answers, default_history
from lrb.validation.reference import history_of as reference_history
from lrb.validation.validator import OutputComparison, validate
from primitives.errors import UserError
from seep.cli.app import app

SETTINGS = TrafficSettings(xways=2, seconds=120, rate=0.5, balances=0.1, expenditures=0.05, accidents_every=60)
NAMES = ["tolls", "accidents", "balances", "expenditures"]

runner = CliRunner()


def table_of(rows: Sequence[tuple[int, ...]], schema: pa.Schema, vids: Sequence[int] | None = None) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema)
    if vids is not None:
        columns = [*columns[: len(schema) - 1], list(vids)]
    return pa.Table.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=schema)


def write(folder: Path, found: Answers, asked: dict[int, int]) -> None:
    write_outputs(
        folder,
        table_of(found.tolls, TOLLS),
        table_of(found.alerts, ALERTS),
        table_of(found.balances, BALANCES, [asked[each.qid] for each in found.balances]),
        table_of(found.expenditures, EXPENDITURES, [asked[each.qid] for each in found.expenditures]),
    )


@pytest.fixture(scope="module")
def tuples() -> list[Tuple]:
    rows = pa.Table.from_batches(traffic(SETTINGS), INPUT).to_pylist()
    return [Tuple(**row) for row in rows]


@pytest.fixture
def run(tmp_path: Path, tuples: list[Tuple]) -> Path:
    """A directory with the input of a run, and its outputs in `out`: all of them right."""
    lines = [",".join(map(str, each)) for each in tuples]
    (tmp_path / "in.csv").write_text("\n".join([*lines[:100], "this is no tuple", *lines[100:], ""]))
    write(tmp_path / "out", answers(tuples), {each.qid: each.vid for each in tuples})
    return tmp_path


def findings(run: Path, **more: bool) -> dict[str, OutputComparison]:
    found = validate(run / "in.csv", run / "out", **more)  # type: ignore[arg-type]
    return {each.output.name: each for each in found}


def edit(file: Path, number: int, **changes: int) -> None:
    """Changes fields of a line; the names are those of its columns."""
    names = ["type", *next(each.printed for each in OUTPUTS if each.file == file.name)]
    lines = file.read_text().splitlines()
    fields = lines[number].split(",")
    for name, value in changes.items():
        fields[names.index(name)] = str(value)
    lines[number] = ",".join(fields)
    file.write_text("\n".join(lines) + "\n")


def lines_of(file: Path) -> list[list[int]]:
    return [[int(field) for field in line.split(",")] for line in file.read_text().splitlines()]


# --- writing ----------------------------------------------------------------------------------------------------------


def test_outputs_are_ordered_by_time_vehicle_and_query(tmp_path: Path) -> None:
    shuffled = [(3, 60, 60, -1, 0), (2, 60, 60, 5, 8), (9, 30, 31, 7, 2)]
    balances = [(60, 61, 5, 4, 1), (60, 61, 6, 3, 1), (60, 61, 7, 2, 1), (59, 60, 8, 9, 1)]
    nothing = ALERTS.empty_table(), EXPENDITURES.empty_table()
    rows = table_of([(*each, vid) for each, vid in zip(balances, (7, 7, 1, 9), strict=True)], BALANCES)
    write_outputs(tmp_path, table_of(shuffled, TOLLS), nothing[0], rows, nothing[1])
    assert (tmp_path / "tolls.csv").read_text() == "0,9,30,31,7,2\n0,2,60,60,5,8\n0,3,60,60,-1,0\n"
    assert lines_of(tmp_path / "balances.csv") == [
        [2, 59, 60, 8, 9, 1],
        [2, 60, 61, 7, 2, 1],
        [2, 60, 61, 6, 3, 1],
        [2, 60, 61, 5, 4, 1],
    ]
    assert (tmp_path / "accidents.csv").read_text() == ""
    assert {path.name for path in tmp_path.iterdir()} == {each.file for each in OUTPUTS}


# --- validating -------------------------------------------------------------------------------------------------------


def test_right_outputs_are_found_right(run: Path) -> None:
    found = findings(run)
    assert list(found) == NAMES
    assert all(each.is_right and each.found == each.expected > 0 for name, each in found.items() if name != "accidents")
    assert found["accidents"].is_right


@pytest.mark.parametrize("name", ["tolls", "balances", "expenditures"])
def test_a_line_too_few_and_a_line_twice_are_found(run: Path, name: str) -> None:
    file = run / "out" / f"{name}.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], *lines[:-1]]) + "\n")
    found = findings(run)
    assert [each.is_right for each in found.values()] == [each != name for each in found]
    wrong = found[name]
    assert (wrong.missing.total(), wrong.unexpected.total(), wrong.late, wrong.malformed) == (1, 1, 0, 0)


def test_a_wrong_number_is_found_and_shown(run: Path) -> None:
    edit(run / "out" / "tolls.csv", 5, toll=12345)
    finding = findings(run)["tolls"]
    assert [line[-1] for line in finding.unexpected] == [12345]
    answer = runner.invoke(app, ["lrb", "validate", "--input", str(run / "in.csv"), "--out", str(run / "out")])
    assert answer.exit_code == 1
    assert "1 line left out: 1 wrong number of fields" in answer.output
    assert "12345 (vid, time, lav, toll)" in answer.output


@pytest.mark.parametrize(
    ("name", "after", "late"),
    [
        ("tolls", 5, 0),
        ("tolls", 6, 1),
        ("balances", 6, 1),
        ("expenditures", 10, 0),
        ("expenditures", 11, 1),
        ("tolls", -1, 1),
    ],
)
def test_an_answer_must_come_in_time_but_may_come_later_than_its_question(
    run: Path, name: str, after: int, late: int
) -> None:
    file = run / "out" / f"{name}.csv"
    time = lines_of(file)[0][2 if name == "tolls" else 1]
    edit(file, 0, emit=time + after)
    finding = findings(run)[name]
    assert (finding.late, finding.longest, finding.missing.total()) == (late, max(after, 0), 0)


def test_malformed_lines_are_found(run: Path) -> None:
    edit(run / "out" / "tolls.csv", 0, type=1)
    with (run / "out" / "balances.csv").open("a") as file:
        file.write("2,1,1\n")
    found = findings(run)
    assert (found["tolls"].malformed, found["balances"].malformed) == (1, 1)
    assert found["tolls"].missing.total() == 1


def test_a_balance_of_the_last_minute_is_right_in_a_live_run_only(tmp_path: Path) -> None:
    trip = [Tuple(0, time, 1, 30, 0, 1, 0, 4 + time // 30, (4 + time // 30) * 5280) for time in (0, 30, 60)]
    queries = [Tuple(2, 60, 1, qid=1), Tuple(2, 91, 1, qid=2)]
    (tmp_path / "in.csv").write_text("\n".join(",".join(map(str, each)) for each in [*trip, *queries]))
    found = answers([*trip, *queries])
    for qid, updated, is_right in [(1, 0, True), (2, 30, True), (2, 0, False)]:
        old = [each._replace(result_time=updated) if each.qid == qid else each for each in found.balances]
        write(tmp_path / "out", Answers(found.tolls, found.alerts, old), {1: 1, 2: 1})
        assert not findings(tmp_path)["balances"].is_right
        assert findings(tmp_path, live=True)["balances"].is_right == is_right


def test_outputs_that_are_not_there_are_asked_for(run: Path) -> None:
    (run / "out" / "accidents.csv").unlink()
    with pytest.raises(UserError, match=r"accidents\.csv; --out names the directory"):
        findings(run)


# --- history ----------------------------------------------------------------------------------------------------------

KEYS = st.tuples(st.integers(-1, 5), st.integers(-1, 71), st.integers(-1, 2))


@given(st.lists(st.tuples(KEYS, st.integers(0, 98))), st.lists(KEYS, min_size=1))
def test_a_stored_history_gives_sums_as_the_reference_does(
    rows: list[tuple[tuple[int, int, int], int]], asked: list[tuple[int, int, int]]
) -> None:
    flat = [(*key, toll) for key, toll in rows]
    stored = StoredHistory(pa.Table.from_pylist([dict(zip(HISTORY.names, row, strict=True)) for row in flat], HISTORY))
    plain = reference_history(flat, set(asked))
    wanted = [plain(*key) if 1 <= key[1] <= DAYS and min(key) >= 0 else 0 for key in asked]
    assert stored.tolls(*np.array(asked).T).tolist() == wanted


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 69), st.integers(0, 1000)), min_size=1))
def test_the_default_history_is_that_of_the_reference(asked: list[tuple[int, int, int]]) -> None:
    assert DefaultHistory().tolls(*np.array(asked).T).tolist() == [default_history(*key) for key in asked]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_history_is_read_as_it_was_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"history.{suffix}"
    told: list[tuple[int, int]] = []
    assert write_history(path, 20, xways=3, seed=1, reach=lambda done, total: told.append((done, total))) == 20 * DAYS
    assert told == [(20, 20)]
    table = read_history(path)
    rows = table.to_pylist()
    assert {(row["vid"], row["day"]) for row in rows} == {(v, d) for v in range(1, 21) for d in range(1, 70)}
    assert {row["xway"] for row in rows} == {0, 1, 2}
    row = rows[100]
    found = history_of(path).tolls(*(np.array([row[name]]) for name in ("vid", "day", "xway")))
    assert found.tolist() == [row["toll"]]


def test_a_history_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text("1,2,3\n")
    for name, words in [("history.csv", "VID,Day,XWay,Toll"), ("none.csv", "no history file")]:
        with pytest.raises(UserError, match=words):
            history_of(tmp_path / name)


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["generate"], ["validate"]])
def test_every_help_has_an_example(command: list[str]) -> None:
    answer = runner.invoke(app, ["lrb", *command, "--help"])
    assert answer.exit_code == 0
    assert "Example: seep lrb " in answer.output


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_generated_files_hold_the_traffic_and_its_history_and_are_validated(tmp_path: Path, suffix: str) -> None:
    traffic_file, history = tmp_path / f"in.{suffix}", tmp_path / f"history.{suffix}"
    made = ["--minutes", "1", "--xways", "2", "--seed", "4", "--expenditures", "0.1", "--history", str(history)]
    answer = runner.invoke(app, ["lrb", "generate", "--out", str(traffic_file), *made])
    assert answer.exit_code == 0, answer.output
    table = pa.Table.from_batches(read(traffic_file, DeadLetters()), INPUT)
    assert table.equals(
        pa.Table.from_batches(traffic(TrafficSettings(xways=2, seconds=60, seed=4, expenditures=0.1)), INPUT)
    )
    found = [Tuple(**row) for row in table.to_pylist()]
    asked = {(each.vid, each.day, each.xway) for each in found if each.type == 3}
    stored = reference_history(zip(*read_history(history).to_pydict().values(), strict=True), asked)
    write(tmp_path / "out", answers(found, stored), {each.qid: each.vid for each in found})
    told = ["--input", str(traffic_file), "--out", str(tmp_path / "out"), "--history", str(history)]
    answer = runner.invoke(app, ["lrb", "validate", *told])
    assert answer.exit_code == 0, answer.output
    assert answer.output.count(": right") == 4
    assert runner.invoke(app, ["lrb", "validate", *told[:-2]]).exit_code == 1  # another history


def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    answer = runner.invoke(app, ["lrb", "generate", "--minutes", "1", "--out", str(tmp_path / "in.txt")])
    assert answer.exit_code == 1
    assert list(tmp_path.iterdir()) == []
