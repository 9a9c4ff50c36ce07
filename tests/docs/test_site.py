"""The site of the documentation, as far as that shows without building it: its pages, links, reference and settings."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.documents import ROOT, anchors, blocks, text
from tools import extra, site

SETTINGS: dict[str, Any] = yaml.safe_load(text(ROOT / "mkdocs.yml"))


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site.stage(folder := tmp_path_factory.mktemp("site"))
    return folder


def in_navigation(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    below = entries.values() if isinstance(entries, dict) else entries
    return [page for each in below for page in in_navigation(each)]


def test_every_page_is_in_the_navigation_once(staged: Path) -> None:
    there = {str(path.relative_to(staged)) for path in staged.rglob("*.md")}
    not_in_it = {page for page in there if re.fullmatch(r"decisions/([0-9].*|template)\.md", page)}
    assert sorted(in_navigation(SETTINGS["nav"])) == sorted(there - not_in_it)


def test_every_link_of_a_staged_page_stays_in_the_site_and_finds_its_heading(staged: Path) -> None:
    pages = [path for path in staged.rglob("*.md") if path.name != "api.md"]
    links = [(page, *target.partition("#")[::2]) for page in pages for target in links_of(page)]
    assert len(links) > 300
    for page, path, anchor in links:
        to = staged / normpath(page.relative_to(staged).parent / path) if path else page
        assert to.is_file(), f"{page.name} has a link to {path}"
        assert not anchor or anchor in anchors(to), f"{page.name} has a link to {path}#{anchor}"


def links_of(page: Path) -> list[str]:
    """The targets of links to other pages and pictures."""
    prose = text(page)
    for block in blocks(page):
        prose = prose.replace(block.text, "")
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target]


def test_the_reference_has_every_public_name() -> None:
    page = site.reference()
    for module in site.MODULES:
        section = page.partition(f"\n## {module}\n")[2].partition("\n## ")[0]
        named = re.findall(r"heading: (\w+)|^### (\w+)", section, re.MULTILINE)
        assert [one or other for one, other in named] == site.public_names(module)


def test_every_name_of_the_reference_leads_to_its_source() -> None:
    assert [name for name in re.findall(r"^::: (\S+)$", site.reference(), re.MULTILINE) if not _is_there(name)] == []


def _is_there(name: str) -> bool:
    module, _, own = name.rpartition(".")
    source = ROOT / f"{module.replace('.', '/')}.py"
    source = source if source.exists() else source.with_suffix("") / "__init__.py"
    return re.search(rf"^(?:class|def) {own}\b", text(source), re.MULTILINE) is not None


def test_a_link_that_would_lead_out_of_the_site_becomes_its_words() -> None:
    pages = {"docs/run.md": "run.md", "docs/state.md": "state.md", "README.md": "index.md"}
    found = {
        target: site._LINK.sub(lambda each: site._link(each, "docs/run.md", pages), f"[words]({target})")
        for target in ("state.md#top", "../README.md", "../seep/running/run.py", "#here")
    }
    assert found == {
        "state.md#top": "[words](state.md#top)",
        "../README.md": "[words](index.md)",
        "../seep/running/run.py": "words",
        "#here": "[words](#here)",
    }


def test_the_site_is_strict_and_loads_nothing_from_another_host() -> None:
    assert SETTINGS["strict"] is True
    assert SETTINGS["theme"]["font"] is False
    assert "://" not in text(ROOT / "mkdocs.yml")


def test_the_lock_of_the_site_pins_what_its_extra_asks_for_and_names_no_host() -> None:
    lock = text(ROOT / "docs" / "requirements.lock")
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE))
    asked = [Requirement(line) for line in extra.asked_by("docs")]
    assert asked
    assert [str(each) for each in asked if pins.get(canonicalize_name(each.name), "") not in each.specifier] == []
    assert not re.search(r"://|index|find-links|trusted-host", lock)
