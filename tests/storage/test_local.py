"""Files as values: whole or not there, whatever happens to the disk."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from primitives.errors import EnvironmentFault
from seep.storage.local import LocalStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "some" / "where"


def test_nothing_is_made_before_something_is_written(root: Path) -> None:
    store = LocalStore(root)
    assert list(store.list()) == []
    store.delete(["orders/1"])
    assert not root.exists()


def test_a_value_is_a_file_under_its_key_that_others_can_read(root: Path) -> None:
    LocalStore(root).put("orders/1", [b"value"])
    assert (root / "orders" / "1").read_bytes() == b"value"


def test_directories_that_are_empty_are_removed_with_the_last_value(root: Path) -> None:
    store = LocalStore(root)
    store.put("orders/12/counter/0", [b"value"])
    store.put("orders/13", [b"value"])
    store.delete(["orders/12/counter/0"])
    assert [path.name for path in (root / "orders").iterdir()] == ["13"]


def test_what_a_dead_writer_left_long_ago_is_removed_and_what_a_living_one_writes_is_not(root: Path) -> None:
    partial = root / ".partial"
    partial.mkdir(parents=True)
    for name, age in (("dead", 2 * 24 * 3600), ("living", 60)):
        (partial / name).write_bytes(b"half a")
        os.utime(partial / name, (time.time() - age,) * 2)
    store = LocalStore(root)
    store.put("a", [b"value"])
    assert [path.name for path in partial.iterdir()] == ["living"]
    assert list(store.list()) == ["a"]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EDQUOT, "the quota is used up"),
        (errno.EROFS, "read-only: choose another location"),
        (errno.EIO, "look at the disk"),
    ],
)
@pytest.mark.parametrize("new", [False, True])
def test_a_disk_that_takes_no_more_is_named_and_nothing_is_left(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str, new: bool
) -> None:
    store = LocalStore(root)
    store.put("orders/1", [b"value"])

    def fails(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(EnvironmentFault, match=rf"{root}/orders/2 cannot be written: {os.strerror(code)}; .*{advice}"):
        store.put("orders/2", [b"another"], new=new)
    assert list(store.list()) == ["orders/1"]
    assert list((root / ".partial").iterdir()) == []


def test_a_file_system_without_hard_links_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fails)
    store = LocalStore(root)
    assert store.put("a", [b"value"]) == 5
    with pytest.raises(EnvironmentFault, match="no hard links: choose another location"):
        store.put("b", [b"value"], new=True)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("key", ["orders/1/more", "orders/1/and/more"])
def test_a_key_cannot_go_on_where_another_one_ends(root: Path, key: str, new: bool) -> None:
    store = LocalStore(root)
    store.put("orders/1", [b"value"])
    with pytest.raises(EnvironmentFault, match="a part of this path is a file"):
        store.put(key, [b"another"], new=new)


def test_a_key_cannot_end_where_another_one_goes_on(root: Path) -> None:
    store = LocalStore(root)
    store.put("orders/1", [b"value"])
    with pytest.raises(EnvironmentFault, match="there is a directory of this name"):
        store.put("orders", [b"another"])
    assert list(store.list()) == ["orders/1"]


def test_a_place_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EnvironmentFault, match=f"{tmp_path}/file/orders cannot be written"):
        LocalStore(tmp_path / "file").put("orders", [b"value"])
