"""State that may go to disk: who gives it a place, and what is left of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import seep
from primitives.errors import UserError
from seep.operators.context import Context
from seep.operators.definition import Input
from seep.operators.room import StateBudget
from seep.testing import run

KEYED = Input(pa.schema([("k", pa.int64()), ("n", pa.int64())]), keys=("k",))


def context(room: StateBudget | None) -> Context:
    return Context("counter", 4, [KEYED], 0, room)


def test_containers_of_one_name_on_the_same_node_get_different_places(tmp_path: Path) -> None:
    room = StateBudget(1 << 20, tmp_path)
    assert room.place("counter", "totals") != room.place("counter", "totals")
    assert room.place("counter", "totals").parent == tmp_path


def test_a_room_without_a_directory_has_a_temporary_one_until_it_is_closed() -> None:
    room = StateBudget()
    place = room.place("counter", "totals")
    assert place.parent.is_dir()
    room.close()
    assert not place.parent.exists()


def test_spilling_containers_of_a_node_share_its_budget(tmp_path: Path) -> None:
    made = context(StateBudget(1 << 18, tmp_path))
    frame, values = made.frame("rows", {"n": pa.int64()}, spill=True), made.values("objects", pa.int64(), spill=True)
    frame.add(np.arange(50_000), n=1)
    for key in range(1000):
        values[key] = key
    assert made._room.budget.held() <= (1 << 18) * 1.2
    assert len(frame) == 50_000
    assert [values[key] for key in range(1000)] == list(range(1000))
    assert list(tmp_path.iterdir())
    frame.close()
    values.close()
    assert not list(tmp_path.iterdir())


def test_a_frame_on_disk_takes_half_of_the_budget_unless_it_is_told(tmp_path: Path) -> None:
    made = context(StateBudget(8 << 20, tmp_path))
    asked, told = made.disk("asked", {"n": pa.int64()}), made.disk("told", {"n": pa.int64()}, memory=1 << 20)
    assert (asked._memory, told._memory) == (4 << 20, 1 << 20)
    asked.close()
    told.close()


def test_checking_a_query_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    class Keeping(seep.Operator):
        def output(self, inputs: object) -> pa.Schema:  # noqa: ARG002
            return KEYED.schema

        def open(self, context: Context) -> None:
            self.kept = context.disk("kept", {"n": pa.int64()})

    query = seep.Query("checked")
    source = query.source("numbers", seep.sources.memory([pa.record_batch({"k": [1], "n": [1]})]))
    source.key_by("k").apply("keeping", Keeping).sink("out", seep.sinks.collect())
    source.key_by("k").aggregate("counter", m=seep.count(), on_disk=True).sink("counts", seep.sinks.collect())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_state_of_windows_is_never_on_disk() -> None:
    query = seep.Query("windows")
    source = query.source("numbers", seep.sources.memory([pa.record_batch({"k": [1], "t": [1]})], time="t"))
    with pytest.raises((TypeError, UserError), match="on_disk"):
        source.key_by("k").window(seep.tumbling(5)).aggregate("counter", on_disk=True)  # type: ignore[arg-type]


def test_a_room_of_its_own_is_there_as_long_as_its_operator() -> None:
    """In this process no node gives one; checkpoints write into its directory."""
    query = seep.Query("own-room")
    numbers = pa.table({"k": [n % 50 for n in range(3_000)]})
    rows = query.source("numbers", seep.sources.memory(numbers, partitions=1)).key_by("k")
    rows.aggregate("counter", emit="end", on_disk=True, n=seep.count()).sink("out", seep.sinks.collect())
    assert run(query, rows_per_epoch=200)["out"]["n"].to_pylist() == [60] * 50
