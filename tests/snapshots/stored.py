"""Snapshots: texts that users see, in files of sections with titles; changes in them are for somebody to look at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

HERE = Path(__file__).parent
_TITLE = re.compile(r"^=== (.+)\n", re.MULTILINE)


def read(name: str) -> dict[str, str]:
    """The sections of a file by title."""
    parts = _TITLE.split((HERE / name).read_text(encoding="utf-8"))[1:]
    return {title: text.rstrip("\n") for title, text in zip(parts[::2], parts[1::2], strict=True)}


def write(name: str, sections: Mapping[str, str]) -> None:
    """The file with these sections."""
    text = "\n".join(f"=== {title}\n{text.rstrip()}\n" for title, text in sections.items())
    (HERE / name).write_text(text, encoding="utf-8")


def difference(name: str, sections: Mapping[str, str]) -> str:
    """How the sections differ from those in the file, and what to do; empty if they do not."""
    stored, now = read(name), {title: text.rstrip() for title, text in sections.items()}
    lines: list[str] = []
    for title in dict.fromkeys([*stored, *now]):
        before, after = stored.get(title, ""), now.get(title, "")
        lines += unified_diff(
            before.splitlines(), after.splitlines(), f"stored: {title}", f"now: {title}", "", "", 1, ""
        )
    hint = "if users are to see this, run: make snapshots"
    return "\n".join([f"{name} is not what users see now; {hint}", *lines]) if lines or [*stored] != [*now] else ""
