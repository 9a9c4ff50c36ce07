"""The size of an adaptive pool: by how fast VMs are taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.pool_size import adaptive_size

TAKEN = st.lists(st.floats(0, 200), max_size=30)


def size(taken: list[float], now: float, provisioning: float = 90.0) -> int:
    return adaptive_size(taken, provisioning, now, least=1, most=8, horizon=60.0)


def test_it_is_what_will_be_taken_while_a_vm_is_provisioned() -> None:
    assert size([10.0, 20.0], now=30.0) == 3  # 2 a minute, for 1.5 minutes
    assert size([10.0, 20.0], now=30.0, provisioning=30.0) == 1


def test_it_returns_to_the_reserve_when_nothing_is_taken() -> None:
    assert [size([10.0, 30.0], now) for now in (40.0, 70.0, 89.0, 90.0)] == [3, 2, 2, 1]


def test_what_is_still_to_come_does_not_count() -> None:
    assert size([50.0, 60.0], now=40.0) == 1


@given(TAKEN, st.floats(0, 300), st.floats(0, 200), st.integers(0, 3), st.integers(3, 9))
def test_it_is_never_below_the_reserve_nor_above_the_most(
    taken: list[float], provisioning: float, now: float, least: int, most: int
) -> None:
    assert least <= adaptive_size(taken, provisioning, now, least, most) <= most


@given(TAKEN, st.floats(0, 200), st.floats(0, 200))
def test_one_more_taken_never_makes_it_smaller(taken: list[float], another: float, now: float) -> None:
    assert size([*taken, another], now) >= size(taken, now)
