"""The map in docs/architecture.md says what there is: folders and their ranks, and each hop of its walks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_import_direction import LADDER, ROOT

MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: How far the number of lines may be from what there is.
ABOUT = 0.25
ROWS = re.findall(r"^\| (\d+) \| `([\w/]+)/` \| ([\d,]+) \| (.+) \|$", MAP, re.MULTILINE)
HOPS = sorted(set(re.findall(r"`([\w/]+\.py):([\w.]+)`", MAP)))


def lines_in(folder: Path) -> int:
    """Of its modules and those of folders below it that have no rank of their own."""
    ranked = {ROOT / package.replace(".", "/") for package in LADDER}
    inner = {other for other in ranked if folder in other.parents}
    files = (file for file in folder.rglob("*.py") if not inner.intersection(file.parents))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def purpose_of(folder: Path) -> str:
    """The first line of what the folder says of itself."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert docstring, f"{folder} does not say what belongs in it"
    return docstring.splitlines()[0]


def test_the_map_has_every_folder_by_its_rank_with_what_it_says_of_itself() -> None:
    packages = [package for package in LADDER if package != "benchmarks"]
    wanted = [(str(rank), package.replace(".", "/")) for rank, package in enumerate(packages)]
    assert [(rank, folder) for rank, folder, _, _ in ROWS] == wanted
    assert {folder: purpose for _, folder, _, purpose in ROWS} == {
        folder: purpose_of(ROOT / folder) for _, folder in wanted
    }


@pytest.mark.parametrize(("folder", "told"), [(folder, told) for _, folder, told, _ in ROWS])
def test_the_map_says_about_how_many_lines_a_folder_has(folder: str, told: str) -> None:
    there = lines_in(ROOT / folder)
    assert abs(int(told.replace(",", "")) - there) <= max(ABOUT * there, 100), f"{folder}/ has {there} lines"


@pytest.mark.parametrize(("file", "function"), HOPS)
def test_each_hop_of_a_walk_is_where_the_map_says(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert set(function.split(".")) <= names


def test_the_walks_are_there() -> None:
    assert len(HOPS) > 30
