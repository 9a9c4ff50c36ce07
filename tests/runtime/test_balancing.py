"""Slots that move from instances with too much to do, by themselves and by hand, with failures. Real processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import seep
from policies.balance.loads import Rebalance, SlotLoads
from policies.balance.settings import BalanceSettings
from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, contiguous_assignment, slots_of
from primitives.topology import Assignment
from seep.control.balancing import imbalance
from seep.running.run import Run
from seep.spark.session import Host
from tests.runtime.counting import committed, start
from tests.runtime.counting import wait_until as until

SCHEMA = pa.schema([("key", pa.int64())])
RATE = 20_000
SLOT_BITS = 6
INSTANCES = 3
WINDOW = 0.6
ON = BalanceSettings(enabled=True, window=WINDOW)
#: On a busy machine windows this short differ by the epochs that reports happen to be of, and one epoch may have the
#: rows of ten. Rows that are counted twice, or only one owner's, come to more.
PATIENT = BalanceSettings(enabled=True, window=WINDOW, settings={"factor": 1.5})


def _keys_of(instance: int) -> NDArray[np.int64]:
    """Keys whose slots an instance owns at first."""
    keys = np.arange(2000)
    slots = slots_of(hash_keys([keys]), SLOT_BITS)
    return keys[contiguous_assignment(INSTANCES, SLOT_BITS)[slots] == instance]


@dataclass(frozen=True)
class Skewed:
    """So much of the rows has keys of one instance, which may be another one after so many rows; or all one key."""

    share: float
    turn: int = 1 << 60
    sole: bool = False

    def __call__(self, partition: int, first: int, count: int) -> dict[str, Any]:  # noqa: ARG002
        places = np.arange(first, first + count)
        mixed = (places * 2_654_435_761) % 1_000_003
        keys = mixed % 2000
        for instance in range(INSTANCES):
            own = _keys_of(instance)[:1] if self.sole else _keys_of(instance)
            hot = (places // self.turn % INSTANCES == instance) & (mixed % 100 < 100 * self.share)
            keys[hot] = own[mixed[hot] % len(own)]
        return {"key": keys}


def counted(skew: Skewed) -> seep.Query:
    query = seep.Query("skewed")
    keys = query.source("numbers", seep.sources.generator(skew, SCHEMA)).key_by("key")
    counts = keys.aggregate("counter", n=seep.count(), emit="end", slot_bits=SLOT_BITS, parallelism=INSTANCES)
    counts.sink("out", seep.sinks.collect())
    return query


def end(run: Run, skew: Skewed) -> None:
    """Ends the input; the counts must be exact."""
    run.finish()
    assert run.wait(120)
    rows = run.positions("numbers")[0][1]
    expected = Counter(skew(0, 0, rows)["key"].tolist())
    table = run.result("out")
    assert dict(zip(table["key"].to_pylist(), table["n"].to_pylist(), strict=True)) == expected
    assert len(table) == len(expected)


def told(run: Run, kind: str, times: int = 1) -> None:
    until(lambda: len(run.events.of(kind)) >= times, timeout=120.0)


def windows(run: Run, count: int) -> None:
    """Waits until so many windows are over."""
    goal = run.status().at + count * WINDOW
    until(lambda: run.status().at > goal, timeout=120.0)


def balanced(host: Host, skew: Skewed, balance: BalanceSettings = ON, **options: Any) -> Any:
    return start(host, counted(skew), rate=seep.Rate(RATE), balance=balance, **options)


# -- by itself --------------------------------------------------------------------------------------------------------


def test_slots_move_from_an_instance_that_has_too_much_to_do(host: Host) -> None:
    skew = Skewed(0.8)
    with balanced(host, skew) as run:
        told(run, "balanced")
        (balancing, *_), (done, *_) = run.events.of("balancing"), run.events.of("balanced")
        assert balancing.numbers["imbalance"] == done.numbers["before"] > 2.0
        assert done.numbers["after"] < done.numbers["before"] * 0.75
        assert "times the mean" in balancing.detail
        assert done.seconds is not None
        until(lambda: run.status().imbalance["counter"] < 1.4)
        assert run.status().balanced == ("counter",)
        assert max(each["imbalance"].get("counter", 0.0) for each in run.report()["series"]) > 2.0
        end(run, skew)


def test_counts_are_exact_when_an_instance_is_killed_while_its_slots_move(host: Host) -> None:
    skew = Skewed(0.8)
    with balanced(host, skew, spare=2) as run:
        told(run, "balancing")
        run.kill("counter[0]")
        told(run, "recovered")
        told(run, "balanced")
        until(lambda: run.status().imbalance.get("counter", 9.0) < 1.4, timeout=120.0)
        end(run, skew)


def test_what_is_replayed_after_a_failure_does_not_make_slots_move(host: Host) -> None:
    even = Skewed(0.0)
    with balanced(host, even, PATIENT, spare=2, checkpoint=30.0) as run:
        windows(run, 2)
        run.kill("counter[1]")
        told(run, "recovered")
        windows(run, 3)
        assert not run.events.of("balancing")
        end(run, even)


def test_nothing_moves_where_all_have_as_much_to_do(host: Host) -> None:
    even = Skewed(0.0)
    with balanced(host, even, PATIENT) as run:
        windows(run, 5)
        assert not run.events.of("balancing", "hot slot", "balancing failed")
        end(run, even)


@pytest.mark.acceptance
def test_a_hotspot_that_goes_round_is_not_run_after(host: Host) -> None:
    skew = Skewed(0.8, turn=int(RATE * WINDOW * 2))
    with balanced(host, skew) as run:
        windows(run, 16)
        assert len(run.events.of("balancing")) <= 5
        end(run, skew)


def test_a_key_that_is_too_hot_is_told_once_and_stays_where_it_is(host: Host) -> None:
    skew = Skewed(0.8, sole=True)
    hot = int(_keys_of(0)[0])
    with balanced(host, skew) as run:
        told(run, "hot slot")
        windows(run, 4)
        (event,) = run.events.of("hot slot")
        assert event.instance == "counter[0]"
        assert f"its heaviest key {hot} has" in event.detail
        assert "aggregate before the rows are keyed" in event.detail
        slot = int(slots_of(hash_keys([np.array([hot])]), SLOT_BITS)[0])
        assert event.numbers["slot"] == slot
        owners = run.manager_process.latest_assignment("counter").table
        assert owners[slot] == 0
        assert len(run.events.of("balancing")) <= 2
        end(run, skew)


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_slots_move_by_hand_and_nobody_counts_before_and_after(host: Host) -> None:
    skew = Skewed(0.8)
    with balanced(host, skew, BalanceSettings(window=WINDOW)) as run:
        committed(run, 20)
        assert run.status().balanced == ()
        run.balance("counter")
        told(run, "balanced")
        until(lambda: run.status().balanced == ())
        assert len(run.events.of("balancing")) == 1
        end(run, skew)


def test_what_cannot_be_balanced_is_refused_by_name(host: Host) -> None:
    with balanced(host, Skewed(0.0), BalanceSettings(), parallelism={"counter": 1}) as run:
        with pytest.raises(UserError, match=r"'out' cannot be balanced; choose from counter"):
            run.balance("out")
        with pytest.raises(UserError, match="counter has one instance, so there is nobody to give slots to"):
            run.balance("counter")


@pytest.mark.parametrize(
    ("balance", "problem"),
    [
        (
            BalanceSettings(operators=("countr",)),
            r"balance.operators: 'countr' cannot be balanced; choose from counter",
        ),
        (BalanceSettings(balancer="hotspt"), r"balance.balancer is 'hotspt'; choose hotspot, autoflow"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(host: Host, balance: BalanceSettings, problem: str) -> None:
    with pytest.raises(UserError, match=problem), balanced(host, Skewed(0.0), balance):
        pass


# -- balancers of users -----------------------------------------------------------------------------------------------


class Rotating:
    """Gives the first slot of the first instance to the last, once."""

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        first, *_, last = windows[-1].assignment.parts
        if windows[-1].assignment.owners[0] != first or not windows[-1].rows.any():
            return Rebalance()
        return Rebalance({last: SlotSet([0])}, "the first goes last")


class Failing:
    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        raise ZeroDivisionError(f"nothing to divide among {len(windows[-1].assignment.parts)}")


class Wrong:
    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        del windows
        return Rebalance({0: SlotSet([99])})


class Slow:
    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        del windows
        time.sleep(1.5 * WINDOW)  # that is what it is for
        return Rebalance()


def own(kind: type) -> BalanceSettings:
    return BalanceSettings(enabled=True, balancer=f"{__name__}:{kind.__name__}", window=WINDOW)


def test_a_balancer_of_the_users_own_decides(host: Host) -> None:
    skew = Skewed(0.0)
    with balanced(host, skew, own(Rotating)) as run:
        told(run, "balanced")
        (balancing,) = run.events.of("balancing")
        assert balancing.detail == "the first goes last"
        table = run.manager_process.latest_assignment("counter").table
        assert table[0] == INSTANCES - 1
        end(run, skew)


@pytest.mark.parametrize(
    ("balance", "problem"),
    [
        (own(Failing), "balancer Failing fails: ZeroDivisionError: nothing to divide among 3"),
        pytest.param(
            own(Wrong),
            "balancer Wrong moves slot 99 to instance 0, but it does not exist",
            marks=pytest.mark.acceptance,
        ),
        pytest.param(
            own(Slow), "balancer Slow takes longer than a window of 0.6 s to decide", marks=pytest.mark.acceptance
        ),
    ],
    ids=["raises", "nowhere", "slow"],
)
def test_a_balancer_that_makes_no_sense_is_told_once_and_does_no_harm(
    host: Host, balance: BalanceSettings, problem: str
) -> None:
    skew: Callable[[], Skewed] = lambda: Skewed(0.8)  # noqa: E731
    with balanced(host, skew(), balance) as run:
        told(run, "balancing failed")
        windows(run, 3)
        (failed,) = run.events.of("balancing failed")
        assert problem in failed.detail
        committed(run, 10)
        end(run, skew())


# -- figures ----------------------------------------------------------------------------------------------------------


def test_imbalance_is_told_by_who_owns_what_now() -> None:
    rows = np.array([6, 0, 1, 1])
    assert imbalance(SlotLoads(1.0, Assignment([0, 0, 4, 4]), rows)) == 1.5
    assert imbalance(SlotLoads(1.0, Assignment([0, 4, 4, 4]), rows)) == 1.5
    assert imbalance(SlotLoads(1.0, Assignment([0, 1, 2, 3]), rows)) == 3.0
    assert imbalance(SlotLoads(1.0, Assignment([0, 1, 2, 3]), np.zeros(4, np.int64))) == 1.0
