"""The index of the decisions, made of their first lines: python -m tools.decisions writes docs/decisions/README.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent.parent / "docs" / "decisions"
INDEX = FOLDER / "README.md"

_FIRST_LINES = re.compile(r"# (\d+)\. (.+)\n\nDate: (\d{4}-\d\d-\d\d)\n\n")
_INTRODUCTION = """\
# Decisions

What was chosen, why, and the measurement where there was one: one file for each decision, named by its number. A text
is not rewritten when a later decision overrules it; the later one says so. Measured on two cores with Python 3.11,
unless the text says otherwise.

For a new decision, copy [the template](template.md) to the next free number, fill it in, and run
`python -m tools.decisions`, which writes this index.

| number | decision | date |
|---|---|---|
"""


class Decision(NamedTuple):
    """One of the files."""

    number: int
    title: str
    date: str
    name: str  #: of the file


def decisions() -> list[Decision]:
    """All decisions by number; ValueError names a file that does not begin as the template does."""
    return sorted(map(_decision, FOLDER.glob("[0-9]*.md")))


def index(found: list[Decision]) -> str:
    """The page that lists them, the newest first."""
    rows = [f"| {each.number} | [{each.title}]({each.name}) | {each.date} |\n" for each in reversed(found)]
    return _INTRODUCTION + "".join(rows)


def _decision(path: Path) -> Decision:
    first = _FIRST_LINES.match(path.read_text(encoding="utf-8"))
    if first is None:
        raise ValueError(f"{path.name} does not begin with '# NUMBER. Title', an empty line and 'Date: YYYY-MM-DD'")
    return Decision(int(first[1]), first[2], first[3], path.name)


if __name__ == "__main__":
    INDEX.write_text(index(decisions()), encoding="utf-8")
