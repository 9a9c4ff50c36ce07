"""Providers: the clouds of clusters, and the cluster that a file describes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from formats.settings import checked
from formats.yaml_text import parsed
from primitives.errors import UserError
from seep.deploy.cluster import CloudCluster, Tell
from seep.deploy.settings import ClusterSettings
from seep.shipped import settings_file

#: Provider -> the module and name of its settings, and the module with its `open_cluster(settings, tell)`.
_PROVIDERS = {
    "ec2": ("seep.deploy.ec2.settings", "Ec2Settings", "seep.deploy.ec2.cluster"),
    "gcp": ("seep.deploy.gcp.settings", "GcpSettings", "seep.deploy.gcp.cluster"),
}


def open_cluster(provider: str, path: Path, tell: Tell = lambda _: None) -> CloudCluster:
    """Returns the cluster that a file describes; it makes no resource and sends no request before it is used."""
    settings = read_settings(provider, path)
    _, _, module = _PROVIDERS[provider]
    cluster: CloudCluster = import_module(module).open_cluster(settings, tell)
    return cluster


def read_settings(provider: str, path: Path) -> ClusterSettings:
    """Reads the section `ec2:` or `gcp:` of a file; a UserError names the path of a wrong field."""
    content = _read(path)
    if not isinstance(content, dict) or set(content) != {provider}:
        found = ", ".join(map(str, content)) if isinstance(content, dict) else "no section"
        raise UserError(f"cluster file {path}: it must have the section {provider}: and nothing else; found {found}")
    module, name, _ = _PROVIDERS[provider]
    model: type[ClusterSettings] = getattr(import_module(module), name)
    return checked(model, content[provider], f"cluster file {path}: {provider}")


def _read(path: Path) -> Any:
    try:
        text = settings_file(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UserError(f"cluster file {path} cannot be read ({reason}); give one such as config/ec2.yaml") from reason
    return parsed(text, f"cluster file {path}")
