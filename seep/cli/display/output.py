"""Output of commands: lines for people, or one JSON object for programs."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console


def print_json(value: Any) -> None:
    """Prints a value as JSON, in one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_line(line: str, console: Console | None = None) -> None:
    """Prints a line, which is not interpreted as markup and not broken."""
    (console or Console()).print(line, markup=False, highlight=False, soft_wrap=True)
