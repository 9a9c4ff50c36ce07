"""Keys: each kind is read as it was made, a listing is understood whole, and no other module makes any."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId
from seep.storage.layout import (
    KINDS,
    BackupKey,
    BlobKey,
    ClaimKey,
    ManifestKey,
    PieceKey,
    PinKey,
    RunKey,
    StoredKey,
    SuccessionKey,
    backups_prefix,
    blobs_prefix,
    contents,
    key_of,
    parts_prefix,
    pieces_prefix,
    pushed_prefix,
    query_prefix,
    runs_prefix,
)

ROOT = Path(__file__).parents[2]
WORDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]{0,20}", fullmatch=True)
NUMBERS = st.one_of(st.integers(0, 20), st.integers(0, 10**15))


def values_of(kind: type[StoredKey]) -> st.SearchStrategy[Any]:
    kinds = {"str": WORDS, "int": NUMBERS, "int | None": st.none() | NUMBERS}
    return st.builds(kind, **{each.name: kinds[str(each.type)] for each in fields(kind)})


KEYS = st.one_of([values_of(kind) for kind in KINDS])


@given(KEYS)
@example(PieceKey("orders", "clicks", "finite-4-12345678", 2, 0, "81c0"))
@example(BlobKey("runs", 12, "counter", "0-totals"))
def test_a_key_is_read_as_it_was_made_or_cannot_be_made(key: StoredKey) -> None:
    try:
        text = str(key)
    except (InternalError, UserError):
        return
    assert key_of(text) == key


@given(values_of(BackupKey))
def test_a_backup_can_be_stored_whatever_its_incarnation_is(key: BackupKey) -> None:
    """The incarnations of a run that goes on begin with a number of seven digits."""
    assert key_of(str(key)) == key


@given(st.from_regex(r"[a-z0-9/._-]{1,60}", fullmatch=True))
@example("orders/0000000000012.claim")  # an id has as many digits as it needs, and at least twelve
@example("orders/runs/3")
@example("orders/000000000012")
def test_a_text_that_is_read_as_a_key_is_that_key(text: str) -> None:
    key = key_of(text)
    assert key is None or str(key) == text


def test_texts_that_are_no_keys_are_read_as_none() -> None:
    for text in ("orders/0000000000012.claim", "orders/runs/3", "orders/000000000012.seal", "orders", ".partial/3fa9"):
        assert key_of(text) is None


@pytest.mark.parametrize("bad", ["a/b", "", "..", "é"])
def test_a_value_that_would_lead_out_of_its_place_is_refused(bad: str) -> None:
    with pytest.raises((UserError, InternalError), match="cannot be a key of a store"):
        str(BlobKey("orders", 12, bad, "0-totals"))


def test_each_prefix_is_that_of_its_keys_and_of_no_others() -> None:
    owner = InstanceId("counter", 1)
    all_keys = [
        RunKey("orders", 3),
        ClaimKey("orders", 12),
        PinKey("orders", 12, "3fa9"),
        ManifestKey("orders", 13),
        BlobKey("orders", 12, "counter", "0-totals"),
        BackupKey("orders", "5b1c", "counter", 1, 2, 0, 5, None),
        SuccessionKey("orders", "5b1c", "counter", 1, 2, 1, 0, 5, 4),
        BackupKey("orders", "5b1c", "counter", 10, 2, 0, 5, 4),
        PieceKey("orders", "clicks", "3fa9", 2, 0, "81c0"),
        PieceKey("orders", "clicks2", "3fa9", 2, 0, "81c0"),
        RunKey("orders2", 3),
    ]
    expected = {
        query_prefix("orders"): all_keys[:-1],
        runs_prefix("orders"): all_keys[:1],
        parts_prefix("orders", 12): all_keys[1:3],
        blobs_prefix("orders", 12): all_keys[4:5],
        backups_prefix("orders", "5b1c"): all_keys[5:8],
        backups_prefix("orders", "5b1c", owner): all_keys[5:7],
        pushed_prefix("orders", "clicks"): all_keys[8:9],
        pieces_prefix("orders", "clicks", "3fa9", 2): all_keys[8:9],
    }
    for prefix, keys in expected.items():
        assert [key for key in all_keys if str(key).startswith(prefix)] == keys, prefix


@given(st.lists(KEYS, max_size=20))
def test_the_contents_of_a_store_have_every_key_once(keys: list[StoredKey]) -> None:
    texts = set()
    for key in keys:
        try:
            texts.add(str(key))
        except (InternalError, UserError):
            continue
    found = contents(sorted([*texts, "orders/none of ours", ".partial/x"]))
    listed: list[str] = []
    for query, there in found.items():
        listed += [str(RunKey(query, generation)) for generation in there.generations]
        for each in there.checkpoints.values():
            listed += [*filter(None, (each.claim, each.manifest)), *each.pins, *each.removals, *each.blobs]
        listed += [text for texts_of in (*there.backups.values(), *there.pushed.values()) for text in texts_of]
    assert sorted(listed) == sorted(texts)


# --- who makes keys ---------------------------------------------------------------------------------------------------

#: They make keys; or they are given keys, and make paths and names of places of them.
MAKES_PATHS = {
    f"seep/storage/{name}.py" for name in ("layout", "keys", "local", "memory", "arrow_fs", "s3", "location")
}
METHODS = {"put", "get", "open", "size", "list", "delete"}


def users_of_stores() -> Iterator[tuple[str, ast.Module]]:
    """All modules of the product that import anything of the storage, or are of it."""
    for package in ("seep", "primitives", "policies", "vmpool", "lrb", "nexmark"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            tree = ast.parse(path.read_text())
            imports = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
            is_user = name.startswith("seep/storage/") or any(each.startswith("seep.storage") for each in imports)
            if is_user and name not in MAKES_PATHS:
                yield name, tree


def is_text_for_people(node: ast.expr) -> bool:
    """A message has spaces, and `store.name` is only the beginning of a place that messages name."""
    if isinstance(node, ast.JoinedStr):
        first = node.values[0]
        names_place = isinstance(first, ast.FormattedValue) and ast.unparse(first.value).endswith(("name", "root"))
        return names_place or any(" " in str(part.value) for part in node.values if isinstance(part, ast.Constant))
    return False


def is_written_out(node: ast.expr) -> bool:
    """Whether it is a text, or one that is put together of texts."""
    if isinstance(node, ast.BinOp):
        return is_written_out(node.left) or is_written_out(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def made_keys(tree: ast.AST) -> Iterator[str]:
    """Text with slashes that is put together, and calls of stores with a text that is put together or written out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            slashes = any("/" in str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if slashes and not is_text_for_people(node):
                yield ast.unparse(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
            sides = (node.left, node.right)
            if any(isinstance(s, ast.Constant) and isinstance(s.value, str) and "/" in s.value for s in sides):
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on_store = ast.unparse(node.func.value).lower().endswith("store") and node.func.attr in METHODS
            if on_store and node.args and is_written_out(node.args[0]):
                yield ast.unparse(node)
            if node.func.attr == "join" and ast.unparse(node.func.value) == "'/'":
                yield ast.unparse(node)


def test_no_module_but_the_layout_makes_a_key() -> None:
    users = dict(users_of_stores())
    assert {"seep/storage/records.py", "seep/storage/disposal.py", "seep/inspection/live.py"} <= users.keys()
    found = {name: list(made_keys(tree)) for name, tree in users.items()}
    assert {name: made for name, made in found.items() if made} == {}


@pytest.mark.parametrize(
    "seeded",
    [
        "store.put(f'{query}/mine', parts)",
        "self._store.get(prefix + '/mine')",
        "key = f'{query}/runs/{number}'",
        "key = '/'.join(parts)",
        "key = '%s/runs' % query",
        "store.list('orders')",
        "store.delete(f'{query}{number}')",
    ],
)
def test_a_key_that_is_made_elsewhere_is_found(seeded: str) -> None:
    assert list(made_keys(ast.parse(seeded)))
