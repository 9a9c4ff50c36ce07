"""The kinds of settings files, and how one is told from another: by its sections."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from formats.settings import Section


class ConfigKind(StrEnum):
    """What a file is for."""

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
        """What such a file may say; imported only now, as help and completion need the names alone."""
        module, _, name = _MODELS[self].partition(":")
        return cast("type[Section]", getattr(import_module(module), name))


_MODELS = {
    ConfigKind.POLICY: "seep.config.policy:PolicyFile",
    ConfigKind.EC2: "seep.config.clusters:Ec2File",
    ConfigKind.GCP: "seep.config.clusters:GcpFile",
}


def kind_of(content: Any) -> ConfigKind:
    """What a file's content is; a policy, if nothing in it says otherwise.

    >>> kind_of({"ec2": {"region": "eu-west-1"}}), kind_of({"run": {}}), kind_of(None)
    (<Kind.EC2: 'ec2'>, <Kind.POLICY: 'policy'>, <Kind.POLICY: 'policy'>)
    """
    sections = content if isinstance(content, Mapping) else {}
    return next((kind for kind in (ConfigKind.EC2, ConfigKind.GCP) if kind in sections), ConfigKind.POLICY)
