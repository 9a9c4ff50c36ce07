"""Stages the pages of the site: python -m tools.site FOLDER; `mkdocs build` makes the site of that.

The pages of `docs` come as they are. Others that they link to become pages beside them. A link to any other file of the
project would lead out of the site, so its text stays and the link goes. The reference of the API is made of the public
names of `seep`, whose docstrings mkdocstrings reads.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

ROOT = Path(__file__).parent.parent

#: Files of the project that become pages of the site, by the names that they have there.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "docs/README.md": "documentation.md",
    "docs/decisions/README.md": "decisions/index.md",
}
#: What may be public, in the order of the reference.
MODULES = ("seep", "seep.sources", "seep.sinks", "seep.testing")

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def stage(folder: Path) -> None:
    """Writes all pages of the site into a folder, which is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = names()
    for source, page in pages.items():
        (target := folder / page).parent.mkdir(parents=True, exist_ok=True)
        target.write_text(staged(source, pages), encoding="utf-8")
    for picture in (ROOT / "docs").glob("**/*.svg"):
        shutil.copy(picture, folder / picture.relative_to(ROOT / "docs"))
    (folder / "api.md").write_text(reference(), encoding="utf-8")


def names() -> dict[str, str]:
    """Each file that becomes a page, with its name in the site."""
    pages = {str(path.relative_to(ROOT)): str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    return pages | PAGES


def staged(source: str, pages: Mapping[str, str]) -> str:
    """The text of a page, with links as they are in the site."""
    text = (ROOT / source).read_text(encoding="utf-8")
    parts: list[str] = []
    done = 0
    for code in _blocks(text):
        parts += [_LINK.sub(lambda found: _link(found, source, pages), text[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*parts, _LINK.sub(lambda found: _link(found, source, pages), text[done:])])


def _blocks(text: str) -> Iterator[re.Match[str]]:
    """Blocks of code, in which nothing is a link."""
    return (found for found in _CODE.finditer(text) if found[0].startswith("```"))


def _link(found: re.Match[str], source: str, pages: Mapping[str, str]) -> str:
    picture, words, target = found.groups()
    path, mark, anchor = target.partition("#")
    if "://" in target or not path:
        return found[0]
    there = normpath(str(PurePosixPath(source).parent / path))
    here = PurePosixPath(pages[source]).parent
    if picture:
        return f"![{words}]({relpath(there.removeprefix('docs/'), str(here))})"
    return f"[{words}]({relpath(pages[there], str(here))}{mark}{anchor})" if there in pages else words


def reference() -> str:
    """The page with the docstrings of all public names."""
    lines = ["# API reference", "", "The public names of seep, made of their docstrings."]
    for module in MODULES:
        lines += ["", f"## {module}", ""]
        for name in public_names(module):
            lines += [*_entry(module, name), ""]
    return "\n".join(lines)


def public_names(module: str) -> list[str]:
    """`__all__`, or else what the module imports under its own name."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    source = Path(str(found.__file__)).read_text(encoding="utf-8")
    return sorted(dict.fromkeys(re.findall(r"import \w+ as (\w+)", source)))


def _entry(module: str, name: str) -> list[str]:
    if f"{module}.{name}" in MODULES:
        return [f"### {name}", "", f"A module: its names are below, under `{module}.{name}`."]
    there: Any = public(module, name)
    home, own = getattr(there, "__module__", module), getattr(there, "__qualname__", name)
    return [f"::: {home}.{own}", "    options:", f"      heading: {name}"]


def public(module: str, name: str) -> Any:
    """Returns the object of a public name."""
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
