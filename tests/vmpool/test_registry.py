"""Providers by name or import path, and what is said where that goes wrong."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from primitives.errors import UserError
from vmpool.provider import Provider
from vmpool.registry import Delayed, make_provider
from vmpool.settings import PoolSettings
from vmpool.spark import SparkSlots
from vmpool.standalone import StandaloneProvider

OWN = """
class Own:
    def __init__(self, settings, *, run, master, nodes_per_vm):
        self.told = settings, run, master, nodes_per_vm
    def start(self, name): ...
    def stop(self, machine): ...
    def lost(self, machines): return set()
    def close(self): ...

class Narrow(Own):
    def __init__(self, settings): ...

def without_stop(settings, **_):
    return object()

number = 1
"""


def made(provider: str, master: str = "local[4]", **settings: Any) -> Provider:
    return make_provider(PoolSettings(provider=provider, **settings), master=master, run="r")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a user's module with providers."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_spark_needs_nothing_and_is_never_lost() -> None:
    provider = made("spark")
    assert isinstance(provider, SparkSlots)
    machine = provider.start("vm-1")
    assert (machine.name, machine.host) == ("vm-1", None)
    provider.stop(machine)
    assert provider.lost([machine]) == set()
    provider.close()


def test_standalone_gets_its_settings() -> None:
    provider = made("standalone", "spark://127.0.0.1:7077", settings={"first_host": 9})
    assert isinstance(provider, StandaloneProvider)
    provider.close()


def test_a_provisioning_delay_slows_any_provider_down() -> None:
    assert isinstance(made("spark", provisioning_delay="90s"), Delayed)


def test_an_own_provider_is_made_by_its_import_path(own: str) -> None:
    provider = made(f"{own}:Own", "spark://m:7077", settings={"zone": "a"}, nodes_per_vm=2)
    assert provider.told == ({"zone": "a"}, "r", "spark://m:7077", 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("azure", r"'azure'; choose spark, standalone, ec2, gce, or a class of your own as module:Class"),
        ("no_such_module:X", r"pool\.provider is 'no_such_module:X': .* cannot be imported: ModuleNotFoundError"),
        ("OWN:Missing", r"there is no 'Missing' in own_\S+"),
        ("OWN:number", r"own_\S+:number': that is no class, and no function"),
        ("OWN:Narrow", r"Narrow': it cannot be made: .*it is called with settings, run=, master=, nodes_per_vm="),
        ("OWN:without_stop", r"without_stop': it has no method start, stop, lost, close"),
    ],
)
def test_a_provider_that_will_not_do_is_refused_with_the_reason(own: str, provider: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        made(provider.replace("OWN", own))


def test_settings_for_a_provider_that_takes_none_are_refused() -> None:
    with pytest.raises(UserError, match=r"pool\.settings: zone is unknown; provider spark takes none"):
        made("spark", settings={"zone": "a"})


def test_standalone_with_a_local_master_is_refused() -> None:
    with pytest.raises(UserError, match=r"or choose provider spark"):
        made("standalone")


def test_a_cloud_without_its_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named 'boto3' (for {name})", name="boto3")

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(UserError, match=r"pool\.provider ec2 needs boto3: pip install 'seep-streaming\[cloud\]'"):
        made("ec2")


def test_a_module_of_ours_that_is_missing_is_no_fault_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(ModuleNotFoundError, match=r"vmpool\.aws\.provider"):
        made("ec2")
