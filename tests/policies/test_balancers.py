"""Balancers by name and by import path, and what is said of a user's own that decides what cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from formats.settings import Section
from policies.balance.asking import asked
from policies.balance.autoflow import AutoFlow, AutoFlowSettings
from policies.balance.hotspot import Hotspot, HotspotSettings
from policies.balance.loads import Rebalance, SlotLoads
from policies.balance.registry import BALANCERS, make_balancer
from policies.balance.settings import BalanceSettings
from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.slots import SlotSet
from primitives.topology import Assignment

PAGE = Path(__file__).parents[2] / "docs" / "balancing.md"


class Same:
    """A balancer of a user, who wants the same every time."""

    def __init__(self, index: int = 1, slots: Sequence[int] = (0,)) -> None:
        self.moves = {index: SlotSet(slots)}

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        return Rebalance(self.moves, f"as ever, in window {len(windows)}")


class Undecided:
    """No balancer."""


class Does:
    """Whatever a test wants."""

    def __init__(self, what: Callable[[], object]) -> None:
        self.what = what

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:  # noqa: ARG002  # the shape of every balancer
        return cast(Rebalance, self.what())


THERE = f"{__name__}:Same"
WINDOWS = [SlotLoads(1.0, Assignment([0, 0, 0, 1]), np.array([4, 3, 2, 1]), moving=SlotSet([2]))]


@pytest.mark.parametrize(
    ("name", "factor", "balancer"),
    [
        ("hotspot", 1.5, Hotspot(HotspotSettings(factor=1.5))),
        ("autoflow", 0.5, AutoFlow(AutoFlowSettings(factor=0.5))),
    ],
)
def test_each_name_stands_for_its_balancer_with_its_settings(name: str, factor: float, balancer: object) -> None:
    assert make_balancer(BalanceSettings(balancer=name, settings={"factor": factor})) == balancer


def test_the_default_is_hotspot_and_it_is_off() -> None:
    assert make_balancer(BalanceSettings()) == Hotspot()
    assert not BalanceSettings().enabled


def test_the_description_of_the_setting_lists_all_names() -> None:
    described = BalanceSettings.model_fields["balancer"].description or ""
    assert [name for name in BALANCERS if name not in described] == []


def test_a_class_of_a_user_gets_its_settings_as_keywords_and_is_asked() -> None:
    balancer = make_balancer(BalanceSettings(balancer=THERE, settings={"slots": [0, 1]}))
    assert isinstance(balancer, Same)
    assert asked(balancer, WINDOWS) == Rebalance({1: SlotSet([0, 1])}, "as ever, in window 1")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"balancer": "fair"},
            "balance.balancer is 'fair'; choose hotspot, autoflow, or a class of your own as module",
        ),
        ({"settings": {"factor": 1}}, "balancer hotspot: balance.settings.factor is 1: "),
        ({"balancer": "autoflow", "settings": {"rest": 1}}, "balance.settings.rest is unknown; known are factor"),
        ({"settings": {"rest": 8}}, "balancer hotspot: balance.settings.rest is 8; balance.history must be more"),
        ({"balancer": f"{__name__}:Nobody"}, f"balance.balancer is '{__name__}:Nobody': there is no 'Nobody' in"),
        ({"balancer": f"{__name__}:THERE"}, f"balance.balancer is '{__name__}:THERE': that is no class"),
        ({"balancer": f"{__name__}:Undecided"}, "it has no method decide(self, windows)"),
        (
            {"balancer": THERE, "settings": {"speed": 2}},
            f"balance.settings: {THERE} cannot be made with {{'speed': 2}}",
        ),
    ],
)
def test_a_balancer_that_cannot_be_made_is_refused_with_the_reason(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        make_balancer(BalanceSettings(**said))


@pytest.mark.parametrize(
    ("balancer", "words"),
    [
        (Same(index=2), "balancer Same gives slots to instance 2; there are instances 0, 1"),
        (Same(slots=[4]), "balancer Same moves slot 4 to instance 1, but it does not exist"),
        (Same(slots=[1, 2]), "balancer Same moves slot 2 to instance 1, but it is on its way"),
        (Same(index=0, slots=[3]), "balancer Same takes all slots from instance 1; that is for scaling in to decide"),
        (
            Does(lambda: Rebalance({0: SlotSet([1, 3]), 1: SlotSet([1])})),
            "balancer Does moves slot 1 to instance 1, but it goes to another one too",
        ),
        (
            Does(lambda: {1: [0]}),
            "balancer Does decides {1: [0]}; decide must return a policies.balance.loads.Rebalance",
        ),
        (Does(lambda: 1 / 0), "balancer Does fails: ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_the_name_of_the_class(balancer: Any, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        asked(balancer, WINDOWS)


def test_errors_of_ours_pass_as_they_are() -> None:
    def lose() -> None:
        raise EnvironmentFault("the disk is gone")

    with pytest.raises(SeepError, match=r"^the disk is gone$"):
        asked(Does(lose), WINDOWS)


@pytest.mark.parametrize(("balancer", "settings"), [("hotspot", HotspotSettings), ("autoflow", AutoFlowSettings)])
def test_the_page_says_what_each_balancer_takes(balancer: str, settings: type[Section]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(rf"^\| `{balancer}` \| `(\w+)` \| (.+?) \| (.+) \|$", page, re.MULTILINE)
    fields = {name: (str(field.default).lower(), field.description) for name, field in settings.model_fields.items()}
    assert {name: said for name, *said in told} == {name: [*said] for name, said in fields.items()}
