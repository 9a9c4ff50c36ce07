"""The name of a public class means one thing in the whole project; what only one module knows is private to it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from tests.test_import_direction import MODULES


def public_classes(source: str) -> list[str]:
    """The classes at the top of a module whose names do not begin with an underscore."""
    body = ast.parse(source).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def twice(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names of public classes that several modules have, with these modules; given names and texts of modules."""
    found = defaultdict(list)
    for module, source in modules:
        for name in public_classes(source):
            found[name].append(module)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def test_no_two_modules_have_a_public_class_of_the_same_name() -> None:
    product = [(name, path) for path, name, _ in MODULES if not name.startswith("benchmarks")]
    assert len(product) > 500
    assert twice((name, path.read_text(encoding="utf-8")) for name, path in product) == {}


def test_a_second_class_of_a_name_is_found_and_a_private_one_is_not() -> None:
    public = [
        ("a", "class Part:\n    class Inner: ..."),
        ("b.c", "x = 1\nclass Part(Base): ..."),
        ("d", "class Inner: ..."),
    ]
    private = [("e", "class _Row: ..."), ("f", "class _Row: ...")]
    assert twice([*public, *private]) == {"Part": ["a", "b.c"]}
