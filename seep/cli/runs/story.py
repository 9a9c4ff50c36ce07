"""`seep story`: chains of causes, from a current run or from a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from primitives.errors import UserError
from seep.cli.display.output import print_line
from seep.cli.report_commands import is_report, read
from seep.cli.runs.place import RunPlace
from seep.record.causes.story import story


def tell(
    found: Mapping[str, Any],
    console: Console,
    *,
    instance: str | None,
    decision: int | None,
    epoch: int | None,
    messages: bool,
) -> None:
    """Prints what was decided, moved and lost; with `messages`, also the last messages and answers of machines."""
    lines = [] if messages and not found["events"] else _chains(found, instance, decision, epoch)
    for line in (*lines, *(_messages(found, instance) if messages else ())):
        print_line(line, console)


def _chains(found: Mapping[str, Any], instance: str | None, decision: int | None, epoch: int | None) -> list[str]:
    return story(found["events"], instance=instance, decision=decision, epoch=epoch)


def recorded(place: RunPlace, of: str | None) -> Mapping[str, Any]:
    """Returns the events and messages of a report if a file is named; otherwise those of a run so far."""
    if of is not None and is_report(of):
        report = read(Path(of))
        return {"events": report["events"], "story": report.get("story", {})}
    return place.opened(of).client.tell("story")


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
