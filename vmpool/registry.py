"""Finds providers by name, and users' providers by import path."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from formats.settings import imported
from primitives.errors import UserError, install_command
from vmpool.delayed import Delayed
from vmpool.provider import Provider
from vmpool.settings import PoolSettings
from vmpool.spark import SparkSlots


class Factory(Protocol):
    """A factory of providers: a class or a function."""

    def __call__(self, settings: dict[str, Any], *, run: str, master: str, nodes_per_vm: int) -> Provider: ...


#: Modules with a `from_settings`, imported only when needed: they need packages of the extra `cloud`.
_MODULES = {"standalone": "vmpool.standalone", "ec2": "vmpool.aws.provider", "gce": "vmpool.gcp.provider"}
_NAMES = ("spark", *_MODULES)
_OPTIONAL = ("boto3", "botocore", "google")
_METHODS = ("start", "stop", "lost", "close")


def make_provider(settings: PoolSettings, *, master: str, run: str) -> Provider:
    """Makes the provider that the settings name, delayed if they say so. Raises UserError for wrong settings.

    VMs join Spark at `master`. `run` is unique, and distinguishes its VMs from those of other runs.

    >>> type(make_provider(PoolSettings(), master="local[8]", run="demo")).__name__
    'SparkSlots'
    """
    factory = _factory(settings.provider)
    provider = factory(settings.settings, run=run, master=master, nodes_per_vm=settings.nodes_per_vm)
    _check_complete(provider, settings.provider)
    return Delayed(provider, settings.provisioning_delay) if settings.provisioning_delay else provider


def _factory(name: str) -> Factory:
    if name == "spark":
        return _spark_slots
    if name in _MODULES:
        return _built_in(name)
    if ":" in name:
        return _of_user(name)
    raise UserError(f"pool.provider is {name!r}; choose {', '.join(_NAMES)}, or a class of your own as module:Class")


def _spark_slots(settings: dict[str, Any], **_: Any) -> Provider:
    if settings:
        raise UserError(f"pool.settings: {', '.join(settings)} is unknown; provider spark takes none")
    return SparkSlots()


def _built_in(name: str) -> Factory:
    try:
        factory: Factory = importlib.import_module(_MODULES[name]).from_settings
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
