"""What the project says of itself is true: its lock file, its commands, its links, its version."""

from __future__ import annotations

import ast
import os
import re
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PACKAGES = ("primitives", "policies", "vmpool", "deploy", "seep", "lrb", "nexmark")
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", *(f"{folder}/**/*.md" for folder in ("docs", "config", "deploy", "examples", "benchmarks")))
    for path in ROOT.glob(pattern)
)


def text(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    """The targets of the Makefile that carry a description, so that `make help` lists them."""
    return set(re.findall(r"^([a-z]+):.*## ", text("Makefile"), re.MULTILINE))


def test_the_lock_file_names_no_host_and_no_index() -> None:
    assert not re.search(r"://|index|find-links|trusted-host", text("requirements.lock"))


@pytest.mark.parametrize("extra", ["", "dev"])
def test_the_lock_file_pins_all_that_the_project_asks_for(extra: str) -> None:
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text("requirements.lock"), re.MULTILINE))
    asked = [Requirement(line) for line in requires("seep") or ()]
    asked = [each for each in asked if not each.marker or (extra and each.marker.evaluate({"extra": extra}))]
    assert asked
    pinned = {each: pins.get(canonicalize_name(each.name)) for each in asked}
    assert [str(each) for each, pin in pinned.items() if pin is None or pin not in each.specifier] == []


def test_every_pin_in_the_lock_file_comes_with_its_hashes() -> None:
    pins = re.split(r"^(?=[a-z0-9-]+==)", text("requirements.lock"), flags=re.MULTILINE)[1:]
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_make_command_in_a_document_exists(document: Path) -> None:
    named = re.findall(r"(?:`|^)make ([a-z]+)", text(document), re.MULTILINE)
    assert set(named) <= make_targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_link_in_a_document_leads_to_a_file(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text(document))
    assert [each for each in targets if not (ROOT / document.parent / each).exists()] == []


def test_the_readme_shows_the_two_commands() -> None:
    assert {"demo", "test"} <= set(re.findall(r"^make ([a-z]+)", text("README.md"), re.MULTILINE))


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in text(".ci/run")
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_every_module_says_what_it_is_for() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(modules) >= len(PACKAGES)
    silent = [path for path in modules if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []


def test_every_package_ships_its_types() -> None:
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").exists()] == []


def test_the_version_is_the_same_everywhere() -> None:
    stated = re.findall(r'version="([^"]+)"', text("setup.py")) + re.findall(r"^Version (\S+)", text("README.md"), re.M)
    assert stated == [version("seep")] * 2
