"""Rates: rows due are the exact integral of the profile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from seep.rows.rate import Profile, Rate

RATES = st.builds(
    Rate,
    st.floats(0.1, 1e7),
    st.sampled_from(Profile),
    st.floats(0.5, 1e4),
)
SECONDS = st.floats(0, 1e5)


def level(rate: Rate, seconds: float) -> float:
    """The rate at a time, as the profiles describe it."""
    part = seconds / rate.period % 1
    match rate.profile:
        case Profile.STEADY:
            return 1.0
        case Profile.RAMP:
            return 0.1 + 0.9 * (1 - abs(2 * part - 1))
        case Profile.SAWTOOTH:
            return 0.1 + 0.9 * part
    return 1.0 if 0.45 <= part < 0.55 else 0.2


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("until", [0.3, 0.5, 0.77, 1.0, 2.6])
def test_rows_due_are_the_integral_of_the_rate(profile: Profile, until: float) -> None:
    rate = Rate(1000, profile, period=10)
    steps = 20_000
    middles = (np.arange(steps) + 0.5) * until * 10 / steps
    summed = 1000 * sum(level(rate, at) for at in middles.tolist()) * until * 10 / steps
    assert rate.rows_due(until * 10) == pytest.approx(summed, rel=1e-4)


@given(RATES, SECONDS, SECONDS)
def test_rows_due_never_decrease_and_never_exceed_the_highest_rate(rate: Rate, first: float, second: float) -> None:
    early, late = sorted([first, second])
    gained = rate.rows_due(late) - rate.rows_due(early)
    slack = 1e-9 * rate.rows_per_second * (late + rate.period)
    assert -slack <= gained <= rate.rows_per_second * (late - early) + slack


@given(RATES, SECONDS)
def test_the_time_until_rows_are_due_is_the_inverse(rate: Rate, seconds: float) -> None:
    (due,) = rate.due_times(np.array([rate.rows_due(seconds)]))
    assert due == pytest.approx(seconds, rel=1e-6, abs=1e-6 * rate.period)


@given(RATES)
def test_every_period_brings_the_same_number_of_rows(rate: Rate) -> None:
    one = rate.rows_due(rate.period)
    assert rate.rows_due(7 * rate.period) == pytest.approx(7 * one)


@pytest.mark.parametrize("profile", Profile)
def test_nothing_is_due_before_the_start(profile: Profile) -> None:
    assert Rate(1000, profile).rows_due(-5) == 0


@pytest.mark.parametrize("bad", [{"rows_per_second": 0}, {"rows_per_second": float("nan")}, {"period": -1}])
def test_a_rate_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(bad))):
        Rate(**({"rows_per_second": 1.0} | bad))
