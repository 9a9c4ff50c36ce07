"""What is in the wheel: all packages, the settings files, the scripts of the clouds; and what it asks for."""

from __future__ import annotations

import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from primitives.distribution import DISTRIBUTION
from seep.namesakes import PACKAGES
from tests.distribution.wheels import ROOT, asked_for, locked, lowest


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


def test_the_wheel_says_what_it_is_called(wheel: Path, names: set[str]) -> None:
    [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        said = HeaderParser().parsestr(archive.read(metadata).decode())
    assert said["Name"] == DISTRIBUTION
    assert set(said.get_all("Provides-Extra") or ()) == {"cloud", "disk", "pandas", "dev"}


def test_everything_that_is_asked_for_has_a_lowest_version() -> None:
    pinned = [Requirement(pin) for pin in lowest(asked_for())]
    assert sorted(pin.name for pin in pinned) == sorted(each.name for each in asked_for())
    wrong = [str(pin) for pin, each in zip(pinned, asked_for(), strict=True) if not _is_in(pin, each)]
    assert wrong == []


def test_no_lowest_version_is_above_the_locked_one() -> None:
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, locked())}
    assert [str(each) for each in asked_for() if each.name in pins and not _is_in(pins[each.name], each)] == []


def _is_in(pin: Requirement, asked: Requirement) -> bool:
    [version] = pin.specifier
    return version.version in asked.specifier
