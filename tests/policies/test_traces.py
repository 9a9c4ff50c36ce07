"""Recorded histories, replayed: the detector finds and the policies decide what they did when it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.policies.recording import TRACES, moment, read_trace, write_trace

RECORDED = sorted(TRACES.glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDED, ids=[path.stem for path in RECORDED])
def test_the_same_history_leads_to_the_same_findings_and_decisions(path: Path) -> None:
    scaling, moments = read_trace(path)
    assert [moment(each.history, scaling) for each in moments] == moments


@pytest.mark.parametrize("path", RECORDED, ids=[path.stem for path in RECORDED])
def test_a_trace_is_read_as_it_was_written(path: Path, tmp_path: Path) -> None:
    scaling, moments = read_trace(path)
    again = tmp_path / path.name
    write_trace(again, scaling.model_dump(mode="json", exclude_unset=True), moments[-1].history)
    assert read_trace(again) == (scaling, moments)


def story(name: str) -> list[str]:
    """What was found and decided, one line for each moment at which it was something."""
    _, moments = read_trace(TRACES / f"{name}.jsonl")
    return [f"{each.history.now:g} s: {each.found} {each.decided}" for each in moments if each.found or each.decided]


def test_a_slow_store_is_found_once_it_lasts_and_its_sink_scaled_out() -> None:
    assert story("slow-store") == ["20 s: {'out[0]': 'sink'} {'out': 2}", "25 s: {'out[0]': 'sink'} {'out': 2}"]


def test_a_slow_link_is_found_and_nothing_is_scaled() -> None:
    assert story("slow-link") == ["20 s: {'splitter[0]': 'link'} {}", "25 s: {'splitter[0]': 'link'} {}"]


def counters(name: str) -> list[int]:
    """The decisions on the counter, by time."""
    _, moments = read_trace(TRACES / f"{name}.jsonl")
    return [each.decided["counter"] for each in moments if each.decided]


def test_a_jump_is_answered_in_one_step_by_true_rates() -> None:
    assert counters("jump-by-true-rate") == [4]


def test_a_ramp_is_followed_up_and_down_by_cpu_thresholds() -> None:
    assert counters("ramp-by-cpu-threshold") == [2, 4, 3, 2, 1]
