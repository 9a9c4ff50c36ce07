"""Finds balancers by name, and those of users by import path."""

from __future__ import annotations

from formats.settings import WrongSettings
from policies.balance.autoflow import AutoFlow, AutoFlowSettings
from policies.balance.hotspot import Hotspot, HotspotSettings
from policies.balance.loads import Balancer
from policies.balance.settings import BalanceSettings
from policies.plugins import BuiltIn, PluginRegistry


def make_balancer(balance: BalanceSettings) -> Balancer:
    """The balancer that the settings name, with its own settings checked; UserError where they are wrong.

    >>> make_balancer(BalanceSettings(settings={"factor": 1.5})).settings.factor
    1.5
    """
    return _REGISTRY.made(balance.balancer, balance.settings, balance)


def _hotspot(settings: HotspotSettings, balance: BalanceSettings) -> Hotspot:
    for name in ("consecutive", "rest"):
        if getattr(settings, name) >= balance.history:
            problem = f"balance.settings.{name} is {getattr(settings, name)}; balance.history must be more than that"
            raise WrongSettings("balancer hotspot", [problem])
    return Hotspot(settings)


#: By the name that stands in settings.
BALANCERS = {
    "hotspot": BuiltIn(HotspotSettings, _hotspot),
    "autoflow": BuiltIn(AutoFlowSettings, lambda own, _: AutoFlow(own)),
}
_REGISTRY: PluginRegistry[Balancer] = PluginRegistry("balance", "balancer", "windows", BALANCERS)
