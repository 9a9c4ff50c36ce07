"""Live traffic: many expressways from the recording of one, at the pace of its seconds, with the times of answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrb.generator import Recording, TrafficSettings
from lrb.query.columns import BALANCE, EXPENDITURE, TOLL
from lrb.responses import Responses
from lrb.schema import INPUT
from lrb.sources.live import Player, TrafficRate, paced, record
from lrb.validation.reference import Tuple, answers
from tests.lrb.in_process import query, result
from tests.lrb.traffic import rows, table, traffic

SETTINGS = TrafficSettings(seconds=40, balances=0.2, expenditures=0.1)


def recording(seconds: int = 20) -> Recording:
    return Recording(table(traffic(1, vehicles=30, seconds=seconds)).to_batches())


@given(xways=st.integers(1, 3), limits=st.lists(st.integers(1, 40), min_size=1))
def test_tuples_are_the_same_however_they_are_cut_into_blocks(xways: int, limits: list[int]) -> None:
    whole = pa.Table.from_batches([recording().play(0, 20, range(xways))])
    player, blocks, offset, ended = Player(recording(), xways), [], 0, False
    while not ended:
        block = player.read(0, offset, limits[len(blocks) % len(limits)])
        offset, ended = block.offset, block.ended
        blocks.append(block.rows)
    assert pa.Table.from_batches(blocks, INPUT).equals(whole)
    assert player.read(0, 3, 5).rows.equals(whole.slice(3, 5).combine_chunks().to_batches()[0])


@given(speed=st.floats(0.1, 100), part=st.floats(0, 1))
def test_the_tuples_of_a_second_are_due_in_it(speed: float, part: float) -> None:
    rate, made = TrafficRate.of(recording(), 2, speed), recording()
    row = int(part * (rate.totals[-1] - 1))
    second = made.play(0, 20, range(2))["time"][row].as_py()
    assert second - 1e-9 <= speed * rate.due_times(np.array([row]))[0] <= second + 1
    assert rate.rows_due(rate.due_times(np.array([row]))[0]) == pytest.approx(row)
    assert rate.rows_due(10_000) == rate.totals[-1]


def test_live_answers_are_those_of_the_reference(tmp_path: Path) -> None:
    record(SETTINGS, tmp_path / "traffic.arrow")
    source, _ = paced(tmp_path / "traffic.arrow", 3, 1.0)
    tuples = [Tuple(**row) for row in Recording.of(SETTINGS).play(0, 40, range(3)).to_pylist()]
    expected = rows(answers(tuples))
    assert min(map(len, (expected[0], *expected[2:]))) > 10
    assert result(query(source)) == expected


def answered(*waits: tuple[int, float]) -> pa.Table:
    """Answers of some types, to tuples that were due so long before second 100."""
    kinds, seconds = zip(*waits, strict=True)
    due = pa.array([round((100 - each) * 1e6) for each in seconds], pa.int64())
    return pa.table({"type": pa.array(kinds, pa.int32()), "time": pa.array([3] * len(waits), pa.int32()), "due": due})


def test_each_type_of_answer_has_its_own_limit() -> None:
    responses = Responses(clock=lambda: 100.0)
    responses(1, answered((TOLL, 5.0), (TOLL, 5.01), (BALANCE, 6.0), (EXPENDITURE, 9.0), (EXPENDITURE, 10.5)))
    assert responses.figures()[:2] == (5, 3)
    assert responses.figures().max == 10.5


@given(waits=st.lists(st.floats(0.001, 100), min_size=1, max_size=200))
def test_percentiles_are_right_to_two_percent(waits: list[float]) -> None:
    responses = Responses(clock=lambda: 100.0)
    for wait in waits:
        responses(1, answered((TOLL, wait)))
    exact = np.percentile(waits, [50, 95, 99], method="inverted_cdf")
    assert responses.figures()[2:5] == pytest.approx(tuple(exact), rel=0.021)


def test_rows_are_kept_with_the_second_in_which_they_left() -> None:
    responses = Responses(clock=lambda: 100.0, keep=True)
    assert responses.rows() is None
    responses(1, answered((TOLL, 0.5), (TOLL, 7.2)))
    kept = responses.rows()
    assert kept is not None
    assert kept["emit"].to_pylist() == [3, 10]


def test_without_answers_all_times_are_zero() -> None:
    assert Responses().figures() == (0, 0, 0.0, 0.0, 0.0, 0.0)
