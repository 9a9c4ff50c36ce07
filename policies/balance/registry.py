"""Finds balancers by name, and those of users by import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from formats.settings import Section, WrongSettings
from policies.balance.autoflow import AutoFlow, AutoFlowSettings
from policies.balance.hotspot import Hotspot, HotspotSettings
from policies.balance.loads import Balancer
from policies.balance.settings import BalanceSettings
from policies.plugins import made_by_path, own_settings
from primitives.errors import UserError

S = TypeVar("S", bound=Section)


def make_balancer(balance: BalanceSettings) -> Balancer:
    """The balancer that the settings name, with its own settings checked; UserError where they are wrong.

    >>> make_balancer(BalanceSettings(settings={"factor": 1.5})).settings.factor
    1.5
    """
    if balance.balancer in BALANCERS:
        return BALANCERS[balance.balancer](balance)
    if ":" in balance.balancer:
        return _of_user(balance)
    raise UserError(
        f"balance.balancer is {balance.balancer!r}; choose {', '.join(BALANCERS)}, or a class of your own as "
        "module:Class"
    )


def _hotspot(balance: BalanceSettings) -> Balancer:
    settings = _own(HotspotSettings, balance)
    for name in ("consecutive", "rest"):
        if getattr(settings, name) >= balance.history:
            problem = f"balance.settings.{name} is {getattr(settings, name)}; balance.history must be more than that"
            raise WrongSettings("balancer hotspot", [problem])
    return Hotspot(settings)


def _autoflow(balance: BalanceSettings) -> Balancer:
    return AutoFlow(_own(AutoFlowSettings, balance))


#: By the name that stands in settings.
BALANCERS: Mapping[str, Callable[[BalanceSettings], Balancer]] = {"hotspot": _hotspot, "autoflow": _autoflow}


def _own(model: type[S], balance: BalanceSettings) -> S:
    return own_settings(model, balance.settings, "balance.settings", f"balancer {balance.balancer}")


def _of_user(balance: BalanceSettings) -> Balancer:
    balancer: Balancer = made_by_path(balance.balancer, balance.settings, "balance", "balancer", "windows")
    return balancer
