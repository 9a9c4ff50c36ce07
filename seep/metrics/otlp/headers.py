"""Headers of pushes, which may have secrets: from the file that the settings name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from primitives.errors import UserError, install_command
from seep.metrics.settings import OtlpSettings

#: The packages of the extra `otlp`, each after those that it is in.
_NEEDED = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.exporter.otlp.proto.http")

_LINE = re.compile(r"([\w!#$%&'*+.^`|~-]+):[ \t]*([\x20-\x7e]*\S)[ \t]*", re.ASCII)
#: The most bytes of the file.
_LONGEST = 1 << 16


def check_otlp(settings: OtlpSettings) -> Mapping[str, str]:
    """Returns the headers of pushes; raises UserError if these, or the library for pushes, cannot be had."""
    if settings.url is None:
        return {}
    if not all(map(find_spec, _NEEDED)):
        raise UserError(f"a push of metrics needs OpenTelemetry, which is not installed: {install_command('otlp')}")
    return read_headers(settings.headers_file)


def read_headers(file: Path | None) -> Mapping[str, str]:
    """Returns the headers in a file: `Name: value` lines; empty lines, and those that begin with #, do not count.

    Raises UserError that names the file and the line, and never its content.
    """
    lines = [] if file is None else [*enumerate(_text(file).splitlines(), 1)]
    return dict(_header(f"{file}: line {number}", line) for number, line in lines if _counts(line))


def _text(file: Path) -> str:
    try:
        with file.open(encoding="ascii") as opened:
            text = opened.read(_LONGEST + 1)
    except (OSError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else "it is not plain ASCII"
        raise UserError(f"metrics.otlp.headers_file {file} cannot be read: {why}") from None
    if len(text) > _LONGEST:
        raise UserError(f"metrics.otlp.headers_file {file} is longer than {_LONGEST} bytes; it is to have headers only")
    return text


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _header(where: str, line: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise UserError(f"metrics.otlp.headers_file {where} is no header; write `Name: value`")
    return found[1], found[2]
