"""What is in the wheel: all packages, the settings files, the scripts of the clouds; and what it asks for."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from primitives.errors import DISTRIBUTION
from seep.spark.namesakes import PACKAGES
from tests.distribution.wheels import ROOT, asked_for, locked, lowest, metadata_of


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files(folder: str) -> set[str]:
    """Of a folder of the checkout, without what Python and tools put there."""
    found = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_of_a_package_is_in_the_wheel(names: set[str], package: str) -> None:
    assert files(package) - names == set()


@pytest.mark.parametrize("folder", ["config", "deploy"])
def test_settings_and_scripts_are_in_the_wheel_as_files_of_seep(names: set[str], folder: str) -> None:
    assert files(folder)
    assert {f"seep/shipped/{name}" for name in files(folder)} - names == set()


def test_the_wheel_takes_no_other_name_at_the_top(names: set[str]) -> None:
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)


def test_the_wheel_says_what_it_is_called(wheel: Path) -> None:
    said = metadata_of(wheel)
    assert said["Name"] == DISTRIBUTION
    assert set(said.get_all("Provides-Extra") or ()) == {
        "cloud",
        "dashboard",
        "disk",
        "metrics",
        "otlp",
        "pandas",
        "dev",
        "docs",
    }


def test_everything_that_is_asked_for_has_a_lowest_version(wheel: Path) -> None:
    asked = asked_for(wheel)
    pinned = [Requirement(pin) for pin in lowest(asked)]
    assert len(asked) > 12
    assert [pin.name for pin in pinned] == [each.name for each in asked]
    assert [str(pin) for pin, each in zip(pinned, asked, strict=True) if not _is_in(pin, each)] == []


def test_what_is_locked_is_what_is_asked_for(wheel: Path) -> None:
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, locked())}
    missing = [each.name for each in asked_for(wheel) if canonicalize_name(each.name) not in pins]
    assert missing == ["pandas", "mkdocs-material", "mkdocstrings-python"], (
        "left out: only Spark's own ways to keep state need pandas; the others have a lock of their own"
    )
    wrong = [
        str(each)
        for each in asked_for(wheel)
        if (pin := pins.get(canonicalize_name(each.name))) and not _is_in(pin, each)
    ]
    assert wrong == []


def _is_in(pin: Requirement, asked: Requirement) -> bool:
    [version] = pin.specifier
    return version.version in asked.specifier
