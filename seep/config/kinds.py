"""The kinds of settings files; a file's sections decide its kind."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from formats.settings import Section


class ConfigKind(StrEnum):
    """The kind of a settings file."""

    POLICY = "policy"
    EC2 = "ec2"
    GCP = "gcp"

    @property
    def words(self) -> str:
        return {
            ConfigKind.POLICY: "policy file",
            ConfigKind.EC2: "EC2 cluster file",
            ConfigKind.GCP: "Google Cloud cluster file",
        }[self]

    @property
    def model(self) -> type[Section]:
        """The model of such files; imported only here, because help and completion need only the names."""
        module, _, name = _MODELS[self].partition(":")
        return cast("type[Section]", getattr(import_module(module), name))


_MODELS = {
    ConfigKind.POLICY: "seep.config.policy:PolicyFile",
    ConfigKind.EC2: "seep.config.clusters:Ec2File",
    ConfigKind.GCP: "seep.config.clusters:GcpFile",
}


def kind_of(content: Any) -> ConfigKind:
    """Returns the kind of a file by its content; by default, a policy.

    >>> kind_of({"ec2": {"region": "eu-west-1"}}), kind_of({"run": {}}), kind_of(None)
    (<ConfigKind.EC2: 'ec2'>, <ConfigKind.POLICY: 'policy'>, <ConfigKind.POLICY: 'policy'>)
    """
    sections = content if isinstance(content, Mapping) else {}
    return next((kind for kind in (ConfigKind.EC2, ConfigKind.GCP) if kind in sections), ConfigKind.POLICY)
