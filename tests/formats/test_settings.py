"""Settings: each wrong field is named by its path, with what it is and what is known."""

from __future__ import annotations

import pytest
from pydantic import Field, model_validator

from formats.settings import OptionalSeconds, Seconds, Section, WrongSettings, checked


class Inner(Section):
    low: int = Field(0, ge=0)
    high: int = 9

    @model_validator(mode="after")
    def _in_order(self) -> Inner:
        if self.high < self.low:
            raise ValueError(f"high is {self.high}, and low {self.low}")
        return self


class Outer(Section):
    name: str
    inner: Inner = Inner()
    by_name: dict[str, Inner] = Field(default_factory=dict)
    every: Seconds = 1.0
    until: OptionalSeconds = None


def problems_with(content: object) -> list[str]:
    with pytest.raises(WrongSettings) as refused:
        checked(Outer, content, "a.yaml")
    assert str(refused.value) == f"a.yaml: {'; '.join(refused.value.problems)}"
    return list(refused.value.problems)


def test_what_is_not_said_has_its_default() -> None:
    assert checked(Outer, {"name": "x"}, "a.yaml") == Outer(name="x")


def test_times_are_read_as_people_write_them() -> None:
    found = checked(Outer, {"name": "x", "every": "50ms", "until": "none"}, "a.yaml")
    assert (found.every, found.until) == (0.05, None)


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (None, ["name is missing"]),
        ({"name": "x", "iner": 1}, ["iner is unknown; known are name, inner, by_name, every, until"]),
        ({"name": "x", "inner": {"lo": 1}}, ["inner.lo is unknown; known are low, high"]),
        ({"name": "x", "by_name": {"a": {"lo": 1}}}, ["by_name.a.lo is unknown; known are low, high"]),
        ({"name": "x", "inner": {"low": -1}}, ["inner.low is -1: Input should be greater than or equal to 0"]),
        ({"name": "x", "inner": {"low": 10}}, ["inner: high is 9, and low 10"]),
        ({"name": "x", "until": "0s"}, ["until is '0s': '0s' is no length of time to wait for; choose more than 0 s"]),
        ([1], ["the whole is [1], and not a mapping"]),
        (
            {"name": "x", "inner": 5, "by_name": ["a"]},
            ["inner is 5, and not a mapping", "by_name is ['a'], and not a mapping"],
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(content: object, problems: list[str]) -> None:
    assert problems_with(content) == problems


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = problems_with({"inner": {"low": "few", "mid": 5}, "every": "often"})
    assert [problem.split()[0] for problem in told] == ["name", "inner.low", "inner.mid", "every"]


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Inner().low = 1  # type: ignore[misc]
