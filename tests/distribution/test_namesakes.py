"""Distributions with packages of the same names: that they are in the way is told, even if nothing can be imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """A directory with the project in it, as pip would have put it there."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def install(package: str, place: Path) -> None:
    """A distribution with one package of its own, at version 0.4.2; it overwrites what is there."""
    (place / package).mkdir(parents=True, exist_ok=True)
    (place / package / "__init__.py").write_text('"""Of somebody else."""\n')
    info = place / f"other_{package}-0.4.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: other-{package}\nVersion: 0.4.2\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


NO_CHECKOUT = "sys.meta_path[:] = [each for each in sys.meta_path if '__editable__' not in str(each)]"


def python(path: list[Path], program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with these directories before all others, away from the checkout, which is not importable."""
    begin = f"import sys; sys.path[:0] = {list(map(str, path))}; {NO_CHECKOUT}; "
    command = [sys.executable, "-I", "-c", begin + program]
    return subprocess.run(command, cwd=path[0], capture_output=True, text=True, check=False)


LOOK = "from seep.spark import namesakes; print(*namesakes.foreign(), *namesakes.sharing(), sep='; ')"


def test_an_installation_that_is_whole_and_alone_is_fine(site: Path) -> None:
    assert python([site], LOOK).stdout == "\n"


def test_a_package_that_is_found_before_ours_is_told(site: Path, tmp_path: Path) -> None:
    install("policies", tmp_path / "first")
    told = python([tmp_path / "first", site], LOOK).stdout
    assert told.startswith(
        f"`import policies` gives {tmp_path}/first/policies instead of {site}/policies: take the other"
    )


def test_files_that_another_distribution_has_overwritten_are_told_with_its_name(site: Path) -> None:
    install("policies", site)
    told = python([site], LOOK).stdout
    assert f"1 files in {site} are not as they were installed, such as policies/__init__.py" in told
    assert (
        "other-policies 0.4.2 (policies) has the same packages: remove it, then pip install --force-reinstall" in told
    )


def test_a_package_of_which_only_our_files_are_left_is_told_too(site: Path) -> None:
    ours = (site / "policies" / "__init__.py").read_bytes()
    install("policies", site)
    (site / "policies" / "__init__.py").write_bytes(ours)
    assert python([site], LOOK).stdout == "other-policies 0.4.2 (policies)\n"


def test_a_file_that_is_gone_is_told(site: Path) -> None:
    (site / "vmpool" / "pool.py").unlink()
    assert (
        "such as vmpool/pool.py: pip install --force-reinstall --no-deps seep-streaming" in python([site], LOOK).stdout
    )


def test_the_command_line_says_why_it_cannot_be_imported(site: Path) -> None:
    install("primitives", site.parent / "first")
    done = python([site.parent / "first", site], "from seep.cli import main; main()")
    assert done.returncode == 1
    assert done.stderr.startswith("environment: `import primitives` gives ")
    assert "Traceback" not in done.stderr


def test_an_import_that_fails_for_another_reason_is_not_blamed_on_namesakes(site: Path) -> None:
    done = python([site], "sys.modules['typer'] = None; from seep.cli import main; main()")
    assert "ModuleNotFoundError: import of typer halted" in done.stderr
