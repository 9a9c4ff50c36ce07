from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, InternalError
from primitives.outbox import Outbox
from primitives.spill import Batches, SpillCodec, SpillStore, pack_batches, unpack_batches
from tests.primitives.spilled import BATCHES, batches_nbytes
from tests.waiting import eventually

MEGABYTE = 1 << 20


def numbers(*values: int) -> dict[str, pa.RecordBatch]:
    return {"edge": pa.record_batch({"n": pa.array(values, pa.int64())})}


def megabyte() -> dict[str, pa.RecordBatch]:
    return {"edge": pa.record_batch({"n": np.arange(MEGABYTE // 8)})}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SpillStore[Batches]]:
    store = SpillStore(tmp_path / "spill", BATCHES)
    yield store
    store.close()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 64 KiB: the kernel stops a write half-way, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def every_kind_of_column() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "int": pa.array([1, None, 3], pa.int16()),
            "bool": pa.array([True, None, False]),
            "text": pa.array(["a", None, "ccc"]),
            "view": pa.array(["short", None, "longer than a view holds inline"], pa.string_view()),
            "word": pa.array(["x", "y", "x"]).dictionary_encode(),
            "other word": pa.array(["p", None, "q"]).dictionary_encode(),
            "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
            "struct": pa.array([{"a": 1, "b": "u"}, None, {"a": None, "b": "v"}]),
            "money": pa.array([Decimal("1.25"), None, Decimal("-3.50")]),
            "time": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, None]),
            "nothing": pa.nulls(3),
        }
    ).replace_schema_metadata({"creator": "a test"})


@given(st.integers(0, 3), st.integers(0, 3))
def test_a_batch_of_any_types_and_any_slice_of_it_survives_packing(offset: int, length: int) -> None:
    batch = every_kind_of_column().slice(offset, length)
    batches, metadata = unpack_batches(pack_batches({"edge": batch}, {"watermark": 5}))
    assert batches["edge"].equals(batch, check_metadata=True)
    assert metadata == {"watermark": 5}


def test_a_batch_of_any_types_survives_the_disk(store: SpillStore[Batches]) -> None:
    payload = {"left": every_kind_of_column(), "right": every_kind_of_column().slice(1, 1), "empty": numbers()["edge"]}
    store.put(1, payload)
    back = store.get(1)
    assert list(back) == list(payload)
    for name, batch in payload.items():
        back[name].validate(full=True)
        assert back[name].equals(batch, check_metadata=True)


@pytest.mark.parametrize("batches", [{}, {"edge": numbers(1, 2)["edge"].select([])}], ids=["no batch", "no column"])
def test_a_payload_without_data_survives_the_disk(store: SpillStore[Batches], batches: Batches) -> None:
    store.put(1, batches)
    back = store.get(1)
    assert {name: batch.num_rows for name, batch in back.items()} == {
        name: batch.num_rows for name, batch in batches.items()
    }


def test_any_payload_can_be_spilled_through_a_codec_of_its_own(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Weighed:
        batch: pa.RecordBatch
        weight: float

    codec = SpillCodec[Weighed](
        to_batches=lambda payload: ({"only": payload.batch}, {"weight": payload.weight}),
        from_batches=lambda batches, metadata: Weighed(batches["only"], float(str(metadata["weight"]))),
    )
    store = SpillStore(tmp_path / "spill", codec)
    payload = Weighed(numbers(1, 2)["edge"], 0.5)
    store.put(1, payload)
    assert store.get(1) == payload
    store.close()


def test_reading_back_allocates_no_memory_for_the_columns(store: SpillStore[Batches]) -> None:
    store.put(1, megabyte())
    before = pa.total_allocated_bytes()
    payload = store.get(1)
    assert pa.total_allocated_bytes() - before < MEGABYTE // 100
    assert payload["edge"].num_rows == MEGABYTE // 8


def test_a_payload_stays_readable_after_its_file_is_gone(store: SpillStore[Batches]) -> None:
    store.put(1, megabyte())
    payload = store.get(1)
    store.close()
    assert payload["edge"].equals(megabyte()["edge"])


def test_neither_files_nor_descriptors_nor_mappings_are_left(store: SpillStore[Batches]) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    for epoch in range(20):
        store.put(epoch, numbers(epoch))
        store.get(epoch)
        store.drop([epoch])
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert eventually(lambda: str(store.directory) not in Path("/proc/self/maps").read_text()), "Arrow's threads let go"
    assert list(store.directory.iterdir()) == []


def test_a_file_is_a_plain_arrow_file_named_for_its_epoch(store: SpillStore[Batches]) -> None:
    size = store.put(42, numbers(7))
    (path,) = store.directory.iterdir()
    assert path.name == "00000000000000000042.arrow"
    assert path.stat().st_size == size == store.nbytes
    with pa.ipc.open_file(path) as reader:
        assert reader.read_all().to_pylist() == [{"edge": [{"n": 7}]}]


def test_what_a_crashed_predecessor_left_is_removed(tmp_path: Path) -> None:
    abandoned = SpillStore(tmp_path, BATCHES)
    abandoned.put(1, numbers(1))
    (tmp_path / "00000000000000000002.arrow.partial").touch()
    (tmp_path / "somebody else's").touch()
    SpillStore(tmp_path, BATCHES).close()
    assert [path.name for path in tmp_path.iterdir()] == ["somebody else's"]


def test_an_epoch_is_stored_once_only(store: SpillStore[Batches]) -> None:
    store.put(1, numbers(1))
    with pytest.raises(InternalError, match="epoch 1 is already"):
        store.put(1, numbers(1))


def test_an_epoch_that_was_never_stored_is_an_internal_error(store: SpillStore[Batches]) -> None:
    with pytest.raises(InternalError, match="epoch 1 is not in"):
        store.get(1)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"not Arrow at all")])
def test_a_missing_or_damaged_file_is_reported_with_its_path(store: SpillStore[Batches], damage) -> None:  # type: ignore[no-untyped-def]
    store.put(1, numbers(1))
    (path,) = store.directory.iterdir()
    damage(path)
    with pytest.raises(EnvironmentFault, match=f"epoch 1 cannot be read back from {path}"):
        store.get(1)


def test_a_directory_that_cannot_be_made_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match=f"cannot use {tmp_path}/file/spill"):
        SpillStore(tmp_path / "file" / "spill", BATCHES)


def test_a_file_that_cannot_be_deleted_is_reported_with_its_path(store: SpillStore[Batches]) -> None:
    store.put(1, numbers(1))
    (path,) = store.directory.iterdir()
    path.unlink()
    path.mkdir()
    with pytest.raises(EnvironmentFault, match=f"cannot delete .*{path}"):
        store.drop([1])
    path.rmdir()


@pytest.mark.usefixtures("small_files")
def test_a_write_cut_short_leaves_no_file_and_names_the_path_and_the_bytes(store: SpillStore[Batches]) -> None:
    with pytest.raises(
        EnvironmentFault, match=rf"cannot write 1\d{{6}} bytes .*\(epoch 1\) to {store.directory}/0+1.arrow"
    ):
        store.put(1, megabyte())
    assert list(store.directory.iterdir()) == []
    assert (len(store), store.nbytes) == (0, 0)


def test_a_full_disk_says_so(store: SpillStore[Batches]) -> None:
    (store.directory / "00000000000000000001.arrow.partial").symlink_to("/dev/full")
    with pytest.raises(EnvironmentFault, match="No space left on device; free some space"):
        store.put(1, megabyte())


@pytest.mark.usefixtures("small_files")
def test_an_outbox_on_a_full_disk_keeps_everything_in_memory(store: SpillStore[Batches]) -> None:
    outbox = Outbox[Batches](size=batches_nbytes, budget=MEGABYTE, spill=store)
    outbox.append(1, megabyte())
    with pytest.raises(EnvironmentFault):
        outbox.append(2, megabyte())
    assert [epoch for epoch, _ in outbox.entries()] == [1, 2]
    assert (outbox.nbytes, len(store)) == (2 * MEGABYTE, 0)


def test_an_outbox_spills_again_once_there_is_space(store: SpillStore[Batches]) -> None:
    outbox = Outbox[Batches](size=batches_nbytes, budget=0, spill=store)
    blocked = store.directory / "00000000000000000001.arrow.partial"
    blocked.mkdir()
    with pytest.raises(EnvironmentFault):
        outbox.append(1, numbers(1))
    blocked.rmdir()
    outbox.append(2, numbers(2))
    assert (outbox.nbytes, len(store)) == (0, 2)


def test_trimming_an_outbox_deletes_the_files_and_keeps_the_rest(store: SpillStore[Batches]) -> None:
    outbox = Outbox[Batches](size=batches_nbytes, budget=0, spill=store)
    for epoch in range(1, 5):
        outbox.append(epoch, numbers(epoch))
    outbox.trim(2)
    assert sorted(int(path.stem) for path in store.directory.iterdir()) == [3, 4]
    assert [epoch for epoch, _ in outbox.entries()] == [3, 4]


def test_an_epoch_without_bytes_never_goes_to_disk(store: SpillStore[Batches]) -> None:
    outbox = Outbox[Batches](size=batches_nbytes, budget=0, spill=store)
    outbox.append(1, {})
    assert (len(outbox), len(store)) == (1, 0)
