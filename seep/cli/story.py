"""`seep story`: chains of causes, from a current run or from a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from primitives.errors import UserError
from seep.cli.report_commands import read
from seep.record.causes.story import story
from seep.running.remote_control import find


def tell(
    of: str, console: Console, *, instance: str | None, decision: int | None, epoch: int | None, messages: bool
) -> None:
    """Prints what was decided, moved and lost; with `messages`, also the last messages and answers of machines."""
    found = _recorded(of)
    lines = [] if messages and not found["events"] else _chains(found, instance, decision, epoch)
    for line in (*lines, *(_messages(found, instance) if messages else ())):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _chains(found: Mapping[str, Any], instance: str | None, decision: int | None, epoch: int | None) -> list[str]:
    return story(found["events"], instance=instance, decision=decision, epoch=epoch)


def _recorded(of: str) -> Mapping[str, Any]:
    """Returns the content of a report if there is such a file; otherwise that of a run so far."""
    path = Path(of)
    if path.suffix == ".json" or path.is_file():
        return read(path)
    return find(of).tell("story")


def _messages(found: Mapping[str, Any], instance: str | None) -> Iterator[str]:
    """Yields the last messages of one instance if it is named; otherwise of all machines."""
    told: Mapping[str, list[str]] = found.get("story") or {}
    chosen = {name: lines for name, lines in told.items() if instance is None or name.partition("#")[0] == instance}
    if not chosen:
        raise UserError(
            "there are no messages: a report has them if seep itself has failed, and a run has those of its machines "
            f"({', '.join(told) or 'none'})"
        )
    for name, lines in chosen.items():
        yield f"{name} took (←) and answered (→):"
        yield from (f"  {line}" for line in lines)
