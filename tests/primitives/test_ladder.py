"""Inside `primitives` imports point one way too, and no module below `seep` imports itself by way of others."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from tests.test_import_direction import MODULES, imports_of, within

#: The parts of `primitives` from the bottom up. All other modules of it are the operations, above these.
LADDER = (
    ("primitives.errors", "primitives.kernels", "primitives.hashing", "primitives.slots", "primitives.routing"),
    ("primitives.state.columnar",),
    ("primitives.state",),
    ("primitives.state.on_disk",),
)
BELOW_SEEP = ("primitives", "formats", "policies", "vmpool")


def rung(module: str) -> int:
    """Where on the ladder a module stands: that of the longest name on it which the module lies within."""
    named = [(len(name), at) for at, names in enumerate(LADDER) for name in names if within(module, name)]
    return max(named)[1] if named else len(LADDER)


def climbs(module: str, source: str) -> list[str]:
    """What a module of `primitives` imports from above it."""
    names = [name for name in imports_of(source, module) if within(name, "primitives") and name.count(".")]
    known = {name for _, name, is_package in MODULES if not is_package}
    return [name for name in names if name in known and rung(name) > rung(module)]


@pytest.mark.parametrize(
    ("path", "module"),
    [(path, name) for path, name, is_package in MODULES if within(name, "primitives") and not is_package],
    ids=[name for _, name, is_package in MODULES if within(name, "primitives") and not is_package],
)
def test_a_part_of_the_primitives_imports_only_parts_below_it(path: Path, module: str) -> None:
    assert climbs(module, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("primitives.slots", "from primitives.state.chunk import Chunk"),
        ("primitives.state.columnar.table", "from primitives.state.frame import Frame"),
        ("primitives.state.values", "from primitives.state.on_disk.cold import ColdSlots"),
        ("primitives.state.values", "from primitives.checkpoint import Checkpoint"),
        ("primitives.state.on_disk.disk", "from primitives import outbox"),
    ],
)
def test_an_import_from_above_is_caught(module: str, source: str) -> None:
    assert climbs(module, source)


def test_no_module_below_seep_imports_itself_by_way_of_others() -> None:
    known = {name for _, name, _ in MODULES}
    imports = nx.DiGraph(
        (module, name)
        for path, module, is_package in MODULES
        for name in imports_of(path.read_text(encoding="utf-8"), module, is_package=is_package)
        if module.split(".")[0] in BELOW_SEEP and name in known and not within(module, name)
    )
    assert imports.number_of_edges() > 300
    assert list(nx.simple_cycles(imports)) == []
