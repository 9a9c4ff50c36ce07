"""Reading: well-formed tuples come through, and all others are told by their lines."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lrb.data import reading
from lrb.data.checking import Problem
from lrb.data.lines import NO_NUMBER, WELL, WRONG_COUNT, parse
from lrb.data.reading import DeadLetters, read
from lrb.generator import TrafficSettings, traffic
from lrb.schema import INPUT
from primitives.errors import EnvironmentFault, UserError

GOOD = "0,5,107,32,0,0,0,10,53320,-1,-1,-1,-1,-1,-1"
BALANCE = "2,5,433,-1,-1,-1,-1,-1,-1,2,-1,-1,-1,-1,-1"
EXPENDITURE = "3,5,231,-1,0,-1,-1,-1,-1,0,-1,-1,-1,-1,60"
TRAVEL_TIME = "4,5,396,-1,0,-1,-1,-1,-1,1,0,0,0,0,-1"


def changed(line: str, **fields: object) -> str:
    parts = line.split(",")
    for name, value in fields.items():
        parts[INPUT.names.index(name)] = str(value)
    return ",".join(parts)


def table(path: Path, letters: DeadLetters, lateness: int = 0) -> pa.Table:
    with letters:
        return pa.Table.from_batches(read(path, letters, lateness=lateness), INPUT)


def read_text(folder: Path, *lines: str, lateness: int = 0) -> tuple[list[list[int]], list[tuple[int, str, str]]]:
    """The tuples, and the dead letters as they are in their file."""
    source, dead = folder / "in.csv", folder / "dead.csv"
    source.write_text("\n".join(lines) + "\n")
    rows = table(source, DeadLetters(dead), lateness).to_pylist()
    letters = list(csv.reader(dead.read_text().splitlines()))[1:] if dead.exists() else []
    return [list(row.values()) for row in rows], [(int(line), problem, text) for line, problem, text in letters]


def is_number(field: bytes) -> bool:
    digits = field.removeprefix(b"-")
    return digits.isdigit() and len(digits) <= 18


@given(st.lists(st.text("0123456789,-x \r", max_size=30), max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
@example(["1,2,-3", "", "12345678901234567890,1,1", "--1,1,1"], "\r\n", True)
def test_lines_are_parsed_as_python_would(lines: list[str], newline: str, ends: bool) -> None:
    text = (newline.join(lines) + newline * ends).encode()
    numbers, found, starts = parse(text, 3)
    expected = text.split(b"\n")[: -1 if text.endswith(b"\n") or not text else None]
    assert [text[begin:end].removesuffix(b"\n") for begin, end in pairwise(starts)] == expected
    for row, line in enumerate(expected):
        fields = line.removesuffix(b"\r").split(b",")
        if len(fields) != 3:
            assert found[row] == WRONG_COUNT
        elif all(map(is_number, fields)):
            assert (found[row], numbers[:, row].tolist()) == (WELL, [int(field) for field in fields])
        else:
            assert found[row] == NO_NUMBER


def test_all_types_are_read(tmp_path: Path) -> None:
    lines = [GOOD, BALANCE, EXPENDITURE, TRAVEL_TIME]
    rows, letters = read_text(tmp_path, *lines)
    assert [",".join(map(str, row)) for row in rows] == lines
    assert letters == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("", Problem.FIELDS),
        ("1,2,3", Problem.FIELDS),
        (GOOD + ",1", Problem.FIELDS),
        (changed(GOOD, speed="fast"), Problem.NUMBER),
        (changed(GOOD, speed=""), Problem.NUMBER),
        (changed(GOOD, speed="3.5"), Problem.NUMBER),
        (changed(GOOD, type=1), Problem.TYPE),
        (changed(GOOD, type=5), Problem.TYPE),
        (changed(GOOD, time=-1), Problem.RANGE),
        (changed(GOOD, time=10_800), Problem.RANGE),
        (changed(GOOD, vid=-1), Problem.RANGE),
        (changed(GOOD, speed=101), Problem.RANGE),
        (changed(GOOD, xway=-1), Problem.RANGE),
        (changed(GOOD, lane=5), Problem.RANGE),
        (changed(GOOD, direction=2), Problem.RANGE),
        (changed(GOOD, segment=100, position=528_000), Problem.RANGE),
        (changed(GOOD, position=52_799), Problem.RANGE),
        (changed(GOOD, day=1 << 31), Problem.RANGE),
        (changed(BALANCE, qid=-1), Problem.RANGE),
        (changed(EXPENDITURE, xway=-1), Problem.RANGE),
    ],
)
def test_a_bad_line_is_told_by_its_number_and_the_rest_is_read(tmp_path: Path, bad: str, problem: Problem) -> None:
    rows, letters = read_text(tmp_path, GOOD, bad, BALANCE)
    assert len(rows) == 2
    assert letters == [(2, problem.words, bad)]


@pytest.mark.parametrize("day", [-1, 0, 70])
def test_a_query_for_a_day_that_is_not_in_the_history_is_a_query(tmp_path: Path, day: int) -> None:
    assert len(read_text(tmp_path, changed(EXPENDITURE, day=day))[0]) == 1


def test_dead_letters_of_an_earlier_run_do_not_stay(tmp_path: Path) -> None:
    assert len(read_text(tmp_path, GOOD, "bad")[1]) == 1
    assert read_text(tmp_path, GOOD)[1] == []
    assert not (tmp_path / "dead.csv").exists()


def test_dead_letters_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("bad\n")
    with pytest.raises(EnvironmentFault, match="dead letters cannot be written"):
        table(tmp_path / "in.csv", DeadLetters(tmp_path / "nowhere" / "dead.csv"))


def test_what_is_later_than_allowed_is_left_out(tmp_path: Path) -> None:
    lines = [changed(GOOD, time=time) for time in (10, 8, 7, 12, 10, 9)]
    rows, letters = read_text(tmp_path, *lines, lateness=2)
    assert [row[1] for row in rows] == [10, 8, 12, 10]
    assert [(line, problem) for line, problem, _ in letters] == [(3, Problem.LATE.words), (6, Problem.LATE.words)]


def test_a_bad_line_makes_no_other_line_late(tmp_path: Path) -> None:
    rows, _ = read_text(tmp_path, changed(GOOD, time=9000, lane=7), changed(GOOD, time=3))
    assert [row[1] for row in rows] == [3]


@pytest.mark.parametrize("block", [1, 40, 100, 1000])
def test_where_blocks_are_cut_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    lines = [GOOD, "bad", BALANCE, changed(GOOD, time=4), TRAVEL_TIME, changed(BALANCE, type=9)]
    expected = read_text(tmp_path, *lines)
    monkeypatch.setattr(reading, "_BLOCK_BYTES", block)
    assert read_text(tmp_path, *lines) == expected
    assert [line for line, _, _ in expected[1]] == [2, 4, 6]


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "in.dat"
    path.write_bytes(f"{GOOD}\r\n{BALANCE}".encode())
    assert len(table(path, DeadLetters())) == 2


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    rows = pa.Table.from_batches(traffic(TrafficSettings(seconds=20, balances=0.2, expenditures=0.1, travel_times=0.1)))
    bad = rows.slice(7, 1).set_column(0, "type", pa.array([9], pa.int32()))
    rows = pa.concat_tables([rows.slice(0, 7), bad.cast(INPUT), rows.slice(7)])
    pq.write_table(rows, tmp_path / "in.parquet")
    (tmp_path / "in.csv").write_text("".join(",".join(map(str, row.values())) + "\n" for row in rows.to_pylist()))
    letters = [DeadLetters(tmp_path / f"dead.{kind}") for kind in ("csv", "parquet")]
    found = [table(tmp_path / f"in.{kind}", each) for kind, each in zip(("csv", "parquet"), letters, strict=True)]
    assert found[0].equals(found[1])
    assert letters[0].counts == letters[1].counts == {Problem.TYPE: 1}
    assert (tmp_path / "dead.csv").read_text() == (tmp_path / "dead.parquet").read_text()


def test_a_null_in_parquet_is_out_of_range(tmp_path: Path) -> None:
    columns = {name: pa.array([int(value), None]) for name, value in zip(INPUT.names, GOOD.split(","), strict=True)}
    columns["type"] = pa.array([0, 0])
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    letters = DeadLetters()
    assert len(table(tmp_path / "in.parquet", letters)) == 1
    assert letters.counts == {Problem.RANGE: 1}


def test_a_file_that_is_no_input_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"type": ["x"]}), tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text(GOOD)
    for name, words in [("none.csv", "no input file"), ("other.parquet", "look at type"), ("text.parquet", "Parquet")]:
        with pytest.raises(UserError, match=words):
            table(tmp_path / name, DeadLetters())
