"""What every back end promises, on every back end that can run here."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import InternalError, UserError
from seep.storage.arrow_fs import ArrowStore
from seep.storage.store import AlreadyThere, BlobStore, NotThere
from tests.storage.backends import PART, Backend

#: None of them goes on where another one ends.
KEYS = ("a", "b/c", "b/d.e", "b/d-e", "b/d/e", "b-c/d", "bc", "orders/000000000012/counter/0-totals")
PREFIXES = (
    "",
    "a",
    "b",
    "b/",
    "b/d",
    "b/d/",
    "orders/0000",
    "orders/000000000012/",
    "none",
    "none/at/all",
    "../",
    "/",
    "/tmp/",
    "a//",
)

keys = st.sampled_from(KEYS)
values = st.binary(max_size=20) | st.integers(0, 3 * PART).map(lambda size: bytes(i % 251 for i in range(size)))


def parted(value: bytes, cuts: list[int]) -> list[bytes | memoryview]:
    """The value in parts, some of which may be empty."""
    bounds = [0, *sorted(min(cut, len(value)) for cut in cuts), len(value)]
    return [memoryview(value)[start:end] for start, end in itertools.pairwise(bounds)]


@settings(max_examples=25)
@given(data=st.data())
def test_a_store_does_what_a_dictionary_does(make_store: Backend, data: st.DataObject) -> None:
    store, model = make_store(), dict[str, bytes]()
    for _ in range(data.draw(st.integers(1, 12), "steps")):
        kind = data.draw(st.sampled_from(["put", "put", "new", "get", "range", "list", "delete"]), "kind")
        step(kind, store, model, data)
    assert {key: bytes(store.get(key)) for key in store.list()} == model


def step(kind: str, store: BlobStore, model: dict[str, bytes], data: st.DataObject) -> None:
    key = data.draw(keys, "key")
    match kind:
        case "put" | "new":
            value, cuts = data.draw(values, "value"), data.draw(st.lists(st.integers(0, 40), max_size=3), "cuts")
            if kind == "new" and key in model:
                with pytest.raises(AlreadyThere, match=key):
                    store.put(key, parted(value, cuts), new=True)
            else:
                assert store.put(key, parted(value, cuts), new=kind == "new") == len(value)
                model[key] = value
        case "get" if key not in model:
            for read in (store.get, store.size, store.open, lambda key: store.get(key, 1, 2)):
                with pytest.raises(NotThere, match=key):
                    read(key)
        case "get":
            assert bytes(store.get(key)) == model[key]
            assert store.size(key) == len(model[key])
        case "range" if key in model:
            start, length = data.draw(st.integers(0, 30), "start"), data.draw(st.none() | st.integers(0, 30), "length")
            assert bytes(store.get(key, start, length)) == model[key][start:][:length]
        case "list":
            prefix = data.draw(st.sampled_from(PREFIXES), "prefix")
            assert list(store.list(prefix)) == sorted(each for each in model if each.startswith(prefix))
        case "delete":
            gone = data.draw(st.lists(keys, max_size=4), "gone")
            store.delete(gone)
            for each in gone:
                model.pop(each, None)


def broken_after(*parts: bytes) -> Iterator[bytes]:
    """A writer that dies when it has given so much."""
    yield from parts
    raise RuntimeError("the writer died")


@pytest.mark.parametrize("size", [0, 10, 3 * PART, 20 * PART])
def test_a_value_whose_writer_fails_is_not_there(make_store: Backend, size: int) -> None:
    store = make_store()
    with pytest.raises(RuntimeError, match="the writer died"):
        store.put("orders/1", broken_after(b"x" * size, b"y"))
    assert list(store.list()) == []
    assert store.put("orders/1", [b"value"], new=True) == 5


def test_a_value_stays_as_it_was_if_the_writer_of_another_one_fails(make_store: Backend) -> None:
    store = make_store()
    store.put("orders/1", [b"value"])
    with pytest.raises(RuntimeError, match="the writer died"):
        store.put("orders/1", broken_after(b"x" * 3 * PART))
    assert bytes(store.get("orders/1")) == b"value"


def test_a_value_of_many_parts_comes_back_whole(make_store: Backend) -> None:
    store = make_store()
    value = bytes(range(256)) * 100
    for new in (True, False):
        assert store.put("orders/1", parted(value, [1, 999, 5000, 5001]), new=new) == len(value)
        assert bytes(store.get("orders/1")) == value
        assert bytes(store.get("orders/1", 12_345, 678)) == value[12_345:][:678]
    with pytest.raises(AlreadyThere, match="orders/1"):
        store.put("orders/1", parted(value, []), new=True)


def test_parts_that_are_not_made_of_bytes_are_stored_as_the_bytes_that_they_are(make_store: Backend) -> None:
    store = make_store()
    numbers = memoryview(b"12345678").cast("I")
    assert store.put("orders/1", [numbers, b"9"]) == 9
    assert bytes(store.get("orders/1")) == b"123456789"


def test_a_stream_reads_the_value_in_whatever_steps(make_store: Backend) -> None:
    store = make_store()
    value = bytes(range(256)) * 20
    store.put("orders/1", [value])
    with store.open("orders/1") as stream:
        assert stream.read(10) == value[:10]
        assert stream.seek(-7, io.SEEK_END) == len(value) - 7
        assert stream.read() == value[-7:]
        assert stream.seek(1000) == 1000
        assert stream.read(3000) == value[1000:4000]
        assert stream.read(0) == b""


@pytest.mark.parametrize(
    "key", ["", "/", "/etc/passwd", "../other", "a/../../b", "a//b", "a/", ".partial/a", "a b", "ä"]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda store, key: store.put(key, [b"x"]),
        lambda store, key: store.get(key),
        lambda store, key: store.open(key),
        lambda store, key: store.size(key),
        lambda store, key: store.delete([key]),
    ],
    ids=["put", "get", "open", "size", "delete"],
)
def test_a_key_that_could_lead_elsewhere_is_refused(
    make_store: Backend, key: str, call: Callable[[BlobStore, str], object]
) -> None:
    with pytest.raises(UserError, match="cannot be a key of a store"):
        call(make_store(), key)


def test_a_range_before_the_beginning_is_refused(make_store: Backend) -> None:
    store = make_store()
    store.put("a", [b"value"])
    for start, length in ((-1, 2), (0, -1)):
        with pytest.raises(InternalError, match="neither may be negative"):
            store.get("a", start, length)


def test_of_many_writers_of_something_new_exactly_one_wins(make_store: Backend) -> None:
    store = make_store()
    if isinstance(store, ArrowStore):
        pytest.skip(f"{store.name} does not decide between writers")
    start = threading.Barrier(6)

    def write(number: int) -> bool:
        start.wait()
        try:
            return bool(store.put("runs/1", [b"run %d" % number], new=True))
        except AlreadyThere:
            return False

    with ThreadPoolExecutor(6) as pool:
        won = [number for number, wins in enumerate(pool.map(write, range(6))) if wins]
    assert [b"run %d" % number for number in won] == [bytes(store.get("runs/1"))]


def test_writers_and_removers_of_neighbours_do_not_disturb_each_other(make_store: Backend) -> None:
    store = make_store()

    def work(number: int) -> None:
        for turn in range(10):
            store.put(f"orders/12/{number}", [b"%d" % turn])
            assert bytes(store.get(f"orders/12/{number}")) == b"%d" % turn
            assert f"orders/12/{number}" in list(store.list("orders/"))
            store.delete([f"orders/12/{number}"])
            with suppress(NotThere):
                store.get(f"orders/12/{number}")
                pytest.fail("it was deleted")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert list(store.list()) == []


def test_more_values_than_fit_one_answer_are_listed_and_deleted(make_store: Backend) -> None:
    store = make_store()
    names = sorted(f"orders/{number}" for number in range(30))
    for name in names:
        store.put(name, [name.encode()])
    assert list(store.list("orders/")) == names
    store.delete(iter(names[:-1]))
    assert list(store.list()) == names[-1:]
