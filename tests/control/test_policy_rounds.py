"""Policies: what they decide is carried out, and one that is slow, hangs or raises costs nobody anything."""

from __future__ import annotations

from policies.observation import History, InstanceReport, Observation
from policies.scaling.decision import Decision
from policies.scaling.settings import DetectorSettings, ScalingSettings
from seep.control.commands import Consult
from tests.control.staging import Shell
from tests.protocol.staging import PASS, SUM

SETTINGS = ScalingSettings(detector=DetectorSettings(report=1.0), cooldown=0.1)


class Wants:
    """Wants so many instances of an operator, whatever it is shown."""

    def __init__(self, parallelism: int = 2, operator: str = "sum") -> None:
        self.parallelism, self.operator = parallelism, operator
        self.asked = 0

    def decide(self, history: History) -> list[Decision]:  # noqa: ARG002
        self.asked += 1
        return [Decision(self.operator, self.parallelism, "as it says")]


class Raises:
    def decide(self, history: History) -> list[Decision]:
        raise ZeroDivisionError(f"at {history.now}")


def observe(shell: Shell, utilisation: float = 0.5) -> None:
    """A report interval of one second is over."""
    reports = {each: InstanceReport(each, "n1", utilisation, utilisation, 10.0, 10.0) for each in (SUM, PASS)}
    shell.clock += 1.0
    shell.observation = Observation(shell.clock, 1.0, reports)
    shell.step()


def test_what_a_policy_decides_is_carried_out() -> None:
    shell = Shell(policy=Wants(), scaling=SETTINGS)
    observe(shell)
    shell.rounds(0.1)
    assert shell.told() == ["scaling out"]


def test_a_policy_is_asked_once_for_each_observation() -> None:
    policy = Wants(1)
    shell = Shell(policy=policy, scaling=SETTINGS)
    observe(shell)
    shell.rounds(5)
    observe(shell)
    assert policy.asked == 2


def test_a_policy_that_raises_is_told_once_and_goes_on_being_asked() -> None:
    shell = Shell(policy=Raises(), scaling=SETTINGS)
    for _ in range(3):
        observe(shell)
    assert shell.told() == ["scaling failed"]
    assert "policy Raises fails at" in shell.events.of("scaling failed")[0].detail


def test_a_policy_that_hangs_is_named_once_and_not_asked_again() -> None:
    shell = Shell(policy=Wants(), scaling=SETTINGS)
    shell.held = []
    for _ in range(5):
        observe(shell)
    assert len(held(shell)) == 1
    assert shell.told() == ["policy slow"]
    assert "policy Wants" in str(shell.events.of("policy slow")[0])
    shell.scale(2)
    shell.rounds(0.1)
    assert shell.told() == ["policy slow", "scaling out"], "what people ask for is done all the same"


def test_what_a_policy_decides_too_late_is_not_carried_out_and_it_is_asked_anew() -> None:
    shell = Shell(policy=Wants(), scaling=SETTINGS)
    shell.held = []
    observe(shell)
    shell.rounds(2)
    late, shell.held = held(shell)[0], None
    shell.give(late)
    shell.step()
    assert shell.told() == ["policy slow"]
    observe(shell)
    assert shell.told() == ["policy slow", "scaling out"]


def test_a_policy_that_asks_for_the_impossible_is_told_so() -> None:
    shell = Shell(policy=Wants(2, "no such operator"), scaling=SETTINGS)
    observe(shell)
    assert shell.told() == ["scaling failed"]
    assert "which the query does not have" in shell.events.of("scaling failed")[0].detail


def test_what_is_asked_by_hand_goes_before_what_a_policy_wants() -> None:
    shell = Shell(free=0, policy=Wants(4), scaling=SETTINGS)
    shell.scale(3)
    observe(shell)
    shell.free = 4
    shell.rounds(0.2)
    (begun,) = shell.events.of("scaling out")
    assert "1 → 3: asked for" in begun.detail


def test_a_bottleneck_is_told_when_it_becomes_one() -> None:
    shell = Shell(policy=Wants(1), scaling=SETTINGS)
    for _ in range(4):
        observe(shell, utilisation=0.9)
    kinds = [(event.kind, event.instance) for event in shell.events]
    assert kinds == [("bottleneck", str(SUM)), ("bottleneck", str(PASS))] or kinds == [
        ("bottleneck", str(PASS)),
        ("bottleneck", str(SUM)),
    ]


def held(shell: Shell) -> list[Consult]:
    assert shell.held is not None
    return shell.held
