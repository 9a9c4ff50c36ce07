"""Makes the section of a version in CHANGELOG.md: python -m tools.changelog VERSION [DATE].

towncrier puts the fragments of `changelog.d` together; what stood under *Unreleased* goes into the same section,
area by area.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
UNRELEASED = "## Unreleased"


def build(folder: Path, version: str, date: str) -> None:
    """Builds the section in a folder with CHANGELOG.md, changelog.d and the settings in pyproject.toml."""
    command = [sys.executable, "-m", "towncrier", "build", "--keep", "--version", version, "--date", date]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"towncrier has failed: {done.stderr or done.stdout}")
    path = folder / "CHANGELOG.md"
    path.write_text(with_unreleased(path.read_text(encoding="utf-8")), encoding="utf-8")
    for fragment in (folder / "changelog.d").glob("+*.md"):
        fragment.unlink()


def with_unreleased(text: str) -> str:
    """The changelog with the entries under *Unreleased* in the newest section, which stands above it."""
    before, heading, after = text.partition(f"{UNRELEASED}\n")
    if not heading:
        return text
    start = before.rindex("\n## ") + 1
    title, _, newest = before[start:].partition("\n")
    older_at = after.find("\n## ") + 1
    unreleased, older = (after[:older_at], after[older_at:]) if older_at else (after, "")
    merged = _merged(entries(newest), entries(unreleased))
    return f"{before[:start]}{title}\n\n{merged}" + (f"\n{older}" if older else "")


def entries(section: str) -> dict[str, list[str]]:
    """The entries of a section by area.

    >>> entries("### State\\n\\n- One.\\n- Two.\\n")
    {'State': ['- One.', '- Two.']}
    """
    parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)[1:]
    return {
        area: [line for line in lines.splitlines() if line.startswith("- ")]
        for area, lines in zip(parts[::2], parts[1::2], strict=True)
    }


def _merged(newest: dict[str, list[str]], earlier: dict[str, list[str]]) -> str:
    order = [*dict.fromkeys([*areas(), *newest, *earlier])]
    chosen = {area: [*newest.get(area, []), *earlier.get(area, [])] for area in order}
    return "\n".join("\n".join([f"### {area}\n", *lines, ""]) for area, lines in chosen.items() if lines)


def areas() -> dict[str, str]:
    """The areas of the changelog: their titles, and what fragments are named by."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.findall(r'\[\[tool\.towncrier\.type\]\]\ndirectory = "(.+)"\nname = "(.+)"', settings)
    return {title: name for name, title in found}


if __name__ == "__main__":
    build(ROOT, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else datetime.now(UTC).date().isoformat())
