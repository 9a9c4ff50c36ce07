"""Finds providers by name, and users' providers by import path."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection
from typing import Any, Protocol

from formats.settings import Section, imported
from primitives.errors import UserError, install_command
from vmpool.provider import Machine, Provider, ProviderError
from vmpool.settings import PoolSettings


class Factory(Protocol):
    """A factory of providers: a class or a function."""

    def __call__(self, settings: dict[str, Any], *, run: str, master: str, nodes_per_vm: int) -> Provider: ...


#: By name, the module with its `from_settings`, and the module and name of the model of `pool.settings`. They are
#: imported only when needed: some need packages of the extra `cloud`.
PROVIDERS = {
    "spark": ("vmpool.spark", "formats.settings", "Section"),
    "standalone": ("vmpool.standalone", "vmpool.standalone", "StandaloneSettings"),
    "ec2": ("vmpool.aws.provider", "vmpool.aws.provider", "Ec2PoolSettings"),
    "gce": ("vmpool.gcp.provider", "vmpool.gcp.settings", "GceSettings"),
}
_OPTIONAL = ("boto3", "botocore", "google")
_METHODS = ("start", "stop", "lost", "close")


def make_provider(settings: PoolSettings, *, master: str, run: str) -> Provider:
    """Makes the provider that the settings name, delayed if they say so. Raises UserError for wrong settings.

    VMs join Spark at `master`. `run` is unique, and distinguishes its VMs from those of other runs.

    >>> type(make_provider(PoolSettings(), master="local[8]", run="demo")).__name__
    'SparkSlots'
    """
    factory = _of_user(settings.provider) if ":" in settings.provider else _built_in(settings.provider)
    provider = factory(settings.settings, run=run, master=master, nodes_per_vm=settings.nodes_per_vm)
    _check_complete(provider, settings.provider)
    return Delayed(provider, settings.provisioning_delay) if settings.provisioning_delay else provider


def settings_model(name: str) -> type[Section]:
    """The model of the settings of a built-in provider."""
    _, module, model = _checked(name)
    found: type[Section] = getattr(importlib.import_module(module), model)
    return found


def _checked(name: str) -> tuple[str, str, str]:
    if name not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise UserError(f"pool.provider is {name!r}; choose {known}, or a class of your own as module:Class")
    return PROVIDERS[name]


def _built_in(name: str) -> Factory:
    module, _, _ = _checked(name)
    try:
        factory: Factory = importlib.import_module(module).from_settings
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _OPTIONAL:
            raise
        raise UserError(f"pool.provider {name} needs {missing.name}: {install_command('cloud')}") from missing
    return factory


def _of_user(path: str) -> Factory:
    found = imported(path, "pool.provider")
    if not callable(found):
        raise UserError(f"pool.provider is {path!r}: that is no class, and no function")

    def factory(settings: dict[str, Any], **more: Any) -> Provider:
        try:
            provider: Provider = found(settings, **more)
        except TypeError as reason:
            raise UserError(
                f"pool.provider is {path!r}: it cannot be made: {reason}; it is called with settings, run=, master=, "
                "nodes_per_vm= (docs/pool.md)"
            ) from reason
        return provider

    return factory


def _check_complete(provider: Provider, name: str) -> None:
    missing = [method for method in _METHODS if not callable(getattr(provider, method, None))]
    if missing:
        raise UserError(f"pool.provider is {name!r}: it has no method {', '.join(missing)} (docs/pool.md)")


class Delayed:
    """Starts every VM of `provider` some seconds later, to show on one machine the effect of a pool in a cloud.

    `close` interrupts the waiting.
    """

    def __init__(self, provider: Provider, seconds: float) -> None:
        self._provider, self._seconds = provider, seconds
        self._closed = threading.Event()

    def start(self, name: str) -> Machine:
        if self._closed.wait(self._seconds):
            raise ProviderError(f"{name} is not needed any more: the run is over", again=False)
        return self._provider.start(name)

    def stop(self, machine: Machine) -> None:
        self._provider.stop(machine)

    def lost(self, machines: Collection[Machine]) -> set[str]:
        return self._provider.lost(machines)

    def close(self) -> None:
        self._closed.set()
        self._provider.close()
