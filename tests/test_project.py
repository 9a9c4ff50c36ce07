"""What the project says of itself is true: its lock file, its commands, its links, its version."""

from __future__ import annotations

import ast
import os
import re
from importlib.metadata import metadata, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from primitives.errors import DISTRIBUTION

ROOT = Path(__file__).parent.parent
PACKAGES = ("primitives", "formats", "policies", "vmpool", "seep", "lrb", "nexmark")
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", *(f"{folder}/**/*.md" for folder in ("docs", "config", "deploy", "examples", "benchmarks")))
    for path in ROOT.glob(pattern)
)


def text(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tracked(*endings: str) -> list[Path]:
    """The project's own files that end so, without what tools have put beside them."""
    named = (*PACKAGES, "benchmarks", "config", "deploy", "docs", "examples", "tests", "tools")
    folders = ("*", *(f"{name}/**/*" for name in named))
    found = {path.relative_to(ROOT) for folder in folders for path in ROOT.glob(folder) if path.name.endswith(endings)}
    return sorted(path for path in found if (ROOT / path).is_file() and path != Path(__file__).relative_to(ROOT))


def extras() -> set[str]:
    return set(metadata(DISTRIBUTION).get_all("Provides-Extra") or ())


def make_targets() -> set[str]:
    """The targets of the Makefile that carry a description, so that `make help` lists them."""
    return set(re.findall(r"^([a-z-]+):.*## ", text("Makefile"), re.MULTILINE))


def test_the_lock_file_names_no_host_and_no_index() -> None:
    assert not re.search(r"://|index|find-links|trusted-host", text("requirements.lock"))


@pytest.mark.parametrize("extra", ["", "dev"])
def test_the_lock_file_pins_all_that_the_project_asks_for(extra: str) -> None:
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text("requirements.lock"), re.MULTILINE))
    asked = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    asked = [each for each in asked if not each.marker or (extra and each.marker.evaluate({"extra": extra}))]
    assert asked
    pinned = {each: pins.get(canonicalize_name(each.name)) for each in asked}
    assert [str(each) for each, pin in pinned.items() if pin is None or pin not in each.specifier] == []


def test_every_pin_in_the_lock_file_comes_with_its_hashes() -> None:
    pins = re.split(r"^(?=[a-z0-9-]+==)", text("requirements.lock"), flags=re.MULTILINE)[1:]
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_make_command_in_a_document_exists(document: Path) -> None:
    blocks = "".join(re.findall(r"^```.*?^```", text(document), re.MULTILINE | re.DOTALL))
    named = re.findall(r"`make ([a-z-]+)", text(document)) + re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE)
    assert set(named) <= make_targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_link_in_a_document_leads_to_a_file(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text(document))
    assert [each for each in targets if not (ROOT / document.parent / each).exists()] == []


def test_the_readme_shows_the_two_commands() -> None:
    assert {"demo", "test"} <= set(re.findall(r"^make ([a-z]+)", text("README.md"), re.MULTILINE))


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = text(".ci/run").splitlines()
    assert commands[-1] == "exec make test </dev/null"
    assert "make --jobs=2 --output-sync test-wheel test-lowest </dev/null" in commands
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
    assert stated == [version(DISTRIBUTION)] * 2


#: Ways to ask the index for `seep`, which is a package of somebody else there.
OF_SOMEBODY_ELSE = re.compile(r"(?<![\w.-])seep\[\w|pip install(?: +-\S+)* +['\"]?seep(?![\w-])")


@pytest.mark.parametrize(
    "text_of_ours", ["pip install 'seep-streaming[disk]'", "a node of `seep`", "pip install seep-streaming"]
)
def test_a_text_may_name_our_distribution(text_of_ours: str) -> None:
    assert not OF_SOMEBODY_ELSE.search(text_of_ours)


@pytest.mark.parametrize(
    "wrong", ["pip install 'seep[cloud]'", "needs seep[disk]", "pip install -U seep", 'pip install "seep"']
)
def test_a_text_that_names_the_other_package_is_found(wrong: str) -> None:
    assert OF_SOMEBODY_ELSE.search(wrong)


def test_no_text_tells_to_install_the_package_of_somebody_else() -> None:
    texts = [*tracked(".py", ".md", ".yaml", ".sh", ".toml", ".json"), Path("Makefile"), Path(".ci/run")]
    assert len(texts) > 800
    assert [str(path) for path in texts if OF_SOMEBODY_ELSE.search(text(path))] == []


def test_only_one_module_knows_what_the_distribution_is_called() -> None:
    modules = [path for path in tracked(".py") if path.parts[0] in PACKAGES and DISTRIBUTION in text(path)]
    assert modules == [Path("primitives/errors.py")]


def test_every_extra_that_a_text_names_exists() -> None:
    named = {
        extra
        for path in tracked(".py", ".md")
        for extra in re.findall(rf"install_command\(['\"](\w+)|{DISTRIBUTION}\[(\w+)", text(path))
    }
    assert {one or other for one, other in named} - {""} <= extras()
    assert ("cloud", "") in named
    assert ("", "cloud") in named
