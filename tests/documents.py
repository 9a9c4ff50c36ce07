"""What the documents of the project say that a machine can check: commands, code, names, files and anchors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

_FOLDERS = ("docs", "config", "deploy", "examples", "benchmarks")
#: Pages that tell how things are now; the changelog and the decisions tell how they were.
PAGES = sorted(
    path
    for pattern in ("README.md", "CONTRIBUTING.md", *(f"{folder}/**/*.md" for folder in _FOLDERS))
    for path in ROOT.glob(pattern)
    if path.parent.name != "decisions" or path.name == "README.md"
)
#: Files whose comments or docstrings show commands.
WITH_COMMANDS = [*PAGES, *sorted(ROOT.glob("config/*.yaml")), *sorted(ROOT.glob("examples/*.py"))]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    """What stands between two lines with three ticks."""

    language: str
    text: str


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(text(path))]


def spans(path: Path) -> list[str]:
    """Inline code; a line end in it is a space."""
    return [" ".join(span.split()) for span in _SPAN.findall(_BLOCK.sub("", text(path)))]


def commands(path: Path, program: str) -> list[list[str]]:
    """The command lines of a program that a page or a file shows, word by word, without their comments."""
    return [words[length:] for words, length in _lines(path, program.split()) if len(words) > length]


def _lines(path: Path, program: list[str]) -> Iterator[tuple[list[str], int]]:
    for line in _shown(path):
        if line.split()[: len(program)] == program:
            yield shlex.split(line.partition(" > ")[0], comments=True), len(program)


def _shown(path: Path) -> Iterator[str]:
    if path.suffix == ".md":
        for block in blocks(path):
            yield from (line.removeprefix("$ ").strip() for line in re.sub(r"\\\n", " ", block.text).splitlines())
        yield from (line.strip() for line in re.findall(r"^    (\S.*)$", text(path), re.MULTILINE))
        yield from spans(path)
    elif path.suffix == ".yaml":
        yield from (line.strip("# ") for line in text(path).splitlines() if line.startswith("#"))
        yield from _SPAN.findall(text(path))
    else:
        yield from (line.strip() for line in text(path).split('"""')[1].splitlines())


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as they are made of their words."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text(path)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def linked_anchors(path: Path) -> list[tuple[Path, str]]:
    """The page and the anchor of every link that names one."""
    found = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text(path))
    return [((path.parent / page).resolve() if page else path, anchor) for page, anchor in found]
