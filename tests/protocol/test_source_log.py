"""The source log: what a source read in which epoch, for as long as it may have to be read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from seep.protocol.manager.source_log import SourceLog

A, B = InstanceId("in", 0), InstanceId("in", 1)


def log_of(*epochs: int, source: InstanceId = A) -> SourceLog:
    """Each epoch moves the only slot of the source on by ten."""
    log = SourceLog()
    for epoch in epochs:
        log.record(source, epoch, {0: 10 * epoch}, exhausted=False)
    return log


def test_a_source_goes_on_at_the_positions_after_an_epoch_with_the_records_of_later_ones() -> None:
    assert log_of(1, 2, 3).after(A, 1) == ({0: 10}, {2: {0: 20}, 3: {0: 30}})


def test_before_its_first_epoch_a_source_is_at_its_beginning() -> None:
    assert log_of(1, 2).after(A, 0) == ({}, {1: {0: 10}, 2: {0: 20}})
    assert SourceLog().after(A, 0) == ({}, {})


@given(trimmed=st.integers(0, 6), asked=st.integers(0, 6))
def test_trimming_changes_nothing_for_who_goes_on_after_the_trimmed_epoch_or_later(trimmed: int, asked: int) -> None:
    log = log_of(1, 2, 3, 4, 5)
    log.trim(A, trimmed)
    after = max(asked, trimmed)
    assert log.after(A, after) == log_of(1, 2, 3, 4, 5).after(A, after)


def test_trimming_forgets_what_comes_before() -> None:
    log = log_of(1, 2, 3)
    log.trim(A, 3)
    assert log.after(A, 0) == ({}, {3: {0: 30}})


def test_sources_are_recorded_and_trimmed_apart() -> None:
    log = log_of(1, 2)
    log.record(B, 2, {1: 7}, exhausted=False)
    log.trim(A, 2)
    assert log.after(B, 1) == ({}, {2: {1: 7}})
    log.trim(InstanceId("other", 0), 2)
    assert log.after(A, 2) == ({0: 20}, {})


def test_the_input_has_ended_when_all_sources_have_nothing_left_after_the_same_epoch() -> None:
    log = SourceLog()
    log.record(A, 1, {0: 1}, exhausted=True)
    assert not log.ended([A, B], 1)
    log.record(B, 1, {1: 1}, exhausted=False)
    assert not log.ended([A, B], 1)
    log.record(A, 2, {0: 1}, exhausted=True)
    log.record(B, 2, {1: 2}, exhausted=True)
    assert log.ended([A, B], 2)
    assert not log.ended([A, B], 3)


def test_trimming_one_source_does_not_forget_that_another_has_ended() -> None:
    log = SourceLog()
    log.record(A, 1, {0: 1}, exhausted=True)
    log.record(A, 2, {0: 1}, exhausted=True)
    log.record(B, 1, {1: 1}, exhausted=True)
    log.trim(A, 2)
    assert log.ended([B], 1)
