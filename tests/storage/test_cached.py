"""The tier in memory saves requests, stays within its budget, and never gives what was changed through it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from seep.storage.cached import CachedStore
from seep.storage.layout import is_blob
from seep.storage.memory import MemoryStore


class CountingStore(MemoryStore):
    """Says how often it was asked, and lets something happen before the answer is on its way back."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self.gets += 1
        value = super().get(key, start, length)
        self.meanwhile()
        return value


def filled(budget: int, **values: bytes) -> tuple[CountingStore, CachedStore]:
    inner = CountingStore()
    for key, value in values.items():
        inner.put(key, [value])
    return inner, CachedStore(inner, budget)


def test_what_was_read_is_not_fetched_again() -> None:
    inner, store = filled(100, a=b"a value")
    assert [bytes(store.get("a")) for _ in range(3)] == [b"a value"] * 3
    assert bytes(store.get("a", 2, 3)) == b"val"
    assert (inner.gets, store.hits, store.misses) == (1, 3, 1)


def test_a_range_is_fetched_alone_and_kept() -> None:
    inner, store = filled(100, a=b"a value")
    assert [bytes(store.get("a", 2, 3)) for _ in range(3)] == [b"val"] * 3
    assert (inner.gets, store.nbytes) == (1, 3)
    assert bytes(store.get("a", 2, 4)) == b"valu"
    assert inner.gets == 2


def test_the_least_recently_read_goes_first() -> None:
    inner, store = filled(20, a=b"a" * 10, b=b"b" * 10, c=b"c" * 10)
    for key in "abac":
        store.get(key)
    assert inner.gets == 3
    store.get("a")
    assert inner.gets == 3
    store.get("b")
    assert inner.gets == 4


def test_what_is_larger_than_the_budget_is_not_kept_and_displaces_nothing() -> None:
    inner, store = filled(5, a=b"a", b=b"b" * 6)
    for key in "abab":
        store.get(key)
    assert (inner.gets, store.nbytes) == (3, 1)


@given(
    st.integers(0, 30), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.none() | st.integers(0, 20)))
)
def test_it_never_keeps_more_than_its_budget(budget: int, reads: list[tuple[str, int, int | None]]) -> None:
    _, store = filled(budget, a=b"a" * 3, b=b"b" * 10, c=b"c" * 29)
    for key, start, length in reads:
        store.get(key, start, length)
        assert store.nbytes <= budget
    store.close()
    assert store.nbytes == 0


def test_a_value_that_changes_while_it_is_read_is_not_kept() -> None:
    inner, store = filled(100, a=b"old", b=b"constant")

    def overtake() -> None:
        inner.meanwhile = lambda: None
        store.put("a", [b"new"])

    inner.meanwhile = overtake
    assert bytes(store.get("a")) == b"old"
    assert bytes(store.get("a")) == b"new"


def test_a_change_of_one_value_leaves_others_in_memory() -> None:
    inner, store = filled(100, a=b"a", b=b"b")
    store.get("a")
    store.get("b")
    store.delete(["a"])
    store.get("b")
    assert inner.gets == 2


def test_a_reading_that_fails_is_forgotten() -> None:
    inner, store = filled(100, a=b"a")

    def fail() -> None:
        raise ConnectionError

    inner.meanwhile = fail
    for _ in range(2):
        try:
            store.get("a")
        except ConnectionError:
            continue
    inner.meanwhile = lambda: None
    assert bytes(store.get("a")) == b"a"
    assert inner.gets == 3


def test_only_keys_that_never_change_are_kept_where_others_write_too() -> None:
    inner = MemoryStore()
    here, there = CachedStore(inner, 100, is_blob), CachedStore(inner, 100, is_blob)
    for value in (b"one", b"two"):
        there.put("orders/000000000001.pin-3fa9", [value])
        assert bytes(here.get("orders/000000000001.pin-3fa9")) == value
    assert here.open("orders/000000000001.pin-3fa9").read() == b"two"
    assert here.nbytes == 0
