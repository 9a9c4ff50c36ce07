"""Dead letters in the record: the newest samples, the number of all, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seep.record.reports import LETTER_TEXT, MOST_LETTERS, InstanceFigures, LetterSample, MalformedReport
from tests.record.kit import Recorded, figures

LETTER = LetterSample(epoch=3, function="halve", error="ValueError: odd", row='{"n": 1}', age=0.25)


def failed(*letters: LetterSample, total: int, **more: int) -> InstanceFigures:
    return figures("map", letters=letters, counters={"dead_letters": total}, **more)


def test_letters_have_the_instance_and_the_time_of_the_run_at_which_they_failed() -> None:
    it = Recorded()
    it.take("n1", 8.0, failed(LETTER, total=7, index=2), figures("counter"))
    (letter,), totals = it.record.dead_letters()
    assert letter.to_json() == {
        "operator": "map",
        "instance": "map[2]",
        "at": 7.75,
        "epoch": 3,
        "function": "halve",
        "error": "ValueError: odd",
        "row": '{"n": 1}',
    }
    assert totals == {"map": 7}
    assert it.record.dead_letters("map") == ((letter,), {"map": 7})
    assert it.record.dead_letters("counter") == ((), {})


def test_the_newest_hundred_are_kept_and_all_are_counted() -> None:
    it = Recorded()
    for epoch in range(150):
        it.take("n1", float(epoch), failed(LETTER._replace(epoch=epoch), total=2 * epoch + 2))
    letters, totals = it.record.dead_letters()
    assert [letter.epoch for letter in letters] == list(range(50, 150))
    assert totals == {"map": 300}


def test_a_replay_adds_no_letter_again_whichever_instance_it_reaches() -> None:
    it = Recorded()
    it.take("n1", 1.0, failed(LETTER, total=1))
    it.take("n2", 2.0, failed(LETTER._replace(age=0.0), total=1, incarnation=1))
    it.take("n3", 3.0, failed(LETTER, LETTER._replace(epoch=4), total=2, index=5))
    assert [letter.epoch for letter in it.record.dead_letters()[0]] == [3, 4]


def test_the_last_word_of_an_instance_has_its_last_letters() -> None:
    it = Recorded()
    it.record.left("n1", failed(LETTER, total=1))
    assert len(it.record.dead_letters()[0]) == 1


@pytest.mark.parametrize(
    ("letters", "objection"),
    [
        ((LETTER,) * (MOST_LETTERS + 1), "6 dead letters; at most 5 are samples"),
        ((LETTER._replace(row="x" * (LETTER_TEXT + 1)),), "a text of more than 500 characters"),
        ((LETTER._replace(function="x" * (LETTER_TEXT + 1)),), "a text of more than 500 characters"),
        ((LETTER._replace(age=-1.0),), "whose age is no number of seconds"),
        ((LETTER._replace(age=float("nan")),), "whose age is no number of seconds"),
    ],
)
def test_impossible_letters_are_refused_with_the_whole_report(
    letters: tuple[LetterSample, ...], objection: str
) -> None:
    it = Recorded()
    with pytest.raises(MalformedReport, match=f"map.0.*{objection}"):
        it.take("n1", 1.0, replace(failed(total=9), letters=letters))
    assert it.record.dead_letters() == ((), {})
