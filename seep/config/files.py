"""Reads settings files; errors name the file, and the line or the path of the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from formats.settings import Section, checked
from formats.yaml_text import parsed
from primitives.errors import UserError
from seep.config.kinds import ConfigKind, kind_of
from seep.config.policy import PolicyFile
from seep.shipped import settings_file


def read_policy(path: Path) -> PolicyFile:
    """Reads the settings of a run; an empty file has all defaults. Raises UserError if it is not a policy file."""
    content = content_of(path)
    kind = kind_of(content)
    if kind is not ConfigKind.POLICY:
        raise UserError(f"{path} is an {kind.words}, no policy file; it is for `seep deploy {kind}`")
    return checked(PolicyFile, content, f"policy {path}")


def read_settings(path: Path) -> tuple[ConfigKind, Section]:
    """Returns the kind of a file, and its settings."""
    content = content_of(path)
    kind = kind_of(content)
    return kind, checked(kind.model, content, f"{kind.words} {path}")


def content_of(path: Path) -> Any:
    """Reads the values in a YAML file; None if it is empty. A file in config/ may be one that is shipped with seep."""
    try:
        text = settings_file(path).read_text(encoding="utf-8")
    except OSError as reason:
        raise UserError(f"{path} cannot be read: {reason.strerror}") from reason
    except UnicodeDecodeError as reason:
        raise UserError(f"{path} is not text in UTF-8: {reason.reason} at byte {reason.start}") from reason
    return parsed(text, str(path))


def in_full(settings: Section) -> str:
    """Returns settings as YAML with all defaults; reading it again gives the same settings."""
    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
    return text
