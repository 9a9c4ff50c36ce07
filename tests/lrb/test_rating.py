"""The search of the L-rating, on machines that are made up; and a small one on real processes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lrb.rate_command import rating_json, trial_line
from lrb.responses import Figures
from lrb.trials import rating
from lrb.trials.rating import Rating, RatingGoal
from lrb.trials.trial import Course, Trial
from seep.cli.app import app
from tests.cli.test_wordcount import seep

WELL = Figures(answers=1_000, violations=0, p50=0.05, p95=0.07, p99=0.08, max=0.1)


def trial(xways: int, *, limit: int = 10**6, **changes: Figures) -> Trial:
    """On a machine that bears `limit` expressways, each of which takes a thousandth of a core and 10 MiB."""
    responses = WELL if xways <= limit else WELL._replace(violations=1, max=6.0)
    given = {"responses": responses, "latest": responses} | changes
    used = {"cores": xways / 1_000, "memory_bytes": (xways * 10 + 900) << 20, "state_bytes": xways * 10 << 20}
    return Trial(xways=xways, tuples_per_s=1_700.0 * xways, seconds=60, **used, **given)  # type: ignore[arg-type]


def tried(limit: int, monkeypatch: pytest.MonkeyPatch, *, memory: int = 64 << 30) -> Rating:
    monkeypatch.setattr(rating, "_free_memory", lambda: memory)
    return Rating(list(rating._trials(RatingGoal(), lambda xways, _: trial(xways, limit=limit))))


def test_the_search_goes_up_until_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(1_900, monkeypatch)
    assert [each.xways for each in found.trials] == [1_410, 1_620, 1_860, 2_000]
    assert found.best is not None
    assert found.best.xways == 1_860


def test_the_search_goes_down_until_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(1_100, monkeypatch)
    assert [each.xways for each in found.trials] == [1_410, 1_225, 1_065]
    assert found.best is not None
    assert found.best.xways == 1_065


def test_a_machine_that_bears_next_to_nothing_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(1, monkeypatch).best is None


def test_a_guess_fits_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(10**6, monkeypatch, memory=10 << 30)
    assert [each.xways for each in found.trials] == [715]


def test_answers_that_come_later_and_later_are_not_sustained() -> None:
    assert trial(100).is_sustained
    assert not trial(100, latest=WELL._replace(p50=2.0)).is_sustained
    assert not trial(100, responses=WELL._replace(answers=0)).is_sustained


def test_a_trial_of_few_seconds_ends_before_the_traffic_does() -> None:
    wanted = RatingGoal(seconds=60, warm_up=10, minutes=180)
    assert wanted.course(60) == Course(10_730, 10_740, 10_800)
    assert wanted.course(5) == Course(10_730, 10_740, 10_745)


def test_a_rating_is_told_in_words_and_as_json() -> None:
    both = Rating([trial(500), trial(600, limit=500)])
    assert "L = 500: 850,000 tuples/s" in trial_line(both.trials[0])
    assert trial_line(both.trials[1]).endswith("NOT sustained")
    told = json.loads(json.dumps(rating_json(both)))
    figures = [told[name] for name in ("L", "tuples_per_s", "p50_ms", "p99_ms", "max_ms")]
    assert figures == [500, 850_000, 50, 80, 100]
    assert [each["L"] for each in told["trials"]] == [500, 600]
    assert rating_json(Rating([trial(600, limit=500)]))["L"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minutes", "1"], "1 minutes of traffic are fewer than 70 seconds"),
        (["--chaos", "kill:feeder@3s"], "--chaos has no place in a rating"),
        (["--rate", "5k"], "--rate has no place in a rating"),
    ],
)
def test_what_makes_no_rating_is_refused(arguments: list[str], words: str) -> None:
    answer = CliRunner().invoke(app, ["lrb", "rate", *arguments])
    assert answer.exit_code == 1
    assert words in answer.output


@pytest.mark.acceptance
def test_a_small_rating_on_real_processes() -> None:
    options = ("--xways", "3", "--minutes", "10", "--measured", "2", "--warm-up", "1", "--json")
    with seep("lrb", "rate", *options) as command:
        code, output = command.end()
    told = json.loads(output.splitlines()[-1])
    assert (told["L"] == 3, code) in [(True, 0), (False, 1)]  # a machine that is busy may be too slow
    (only,) = told["trials"]
    assert only["L"] == 3
    assert 400 < only["tuples_per_s"] < 700
    assert only["answers"] > 300
