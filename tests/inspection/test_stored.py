"""Stored: a checkpoint gives what its containers held, reads no more than it must, and names what is damaged."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.avro_file import Compression
from primitives.errors import EnvironmentFault, UserError
from primitives.hashing import hash_key
from primitives.slots import SlotSet, slot_of
from seep.inspection import Stored, checkpoints, queries, unpacked
from seep.storage.disposal import InUse
from seep.testing import rows
from tests.inspection.orders import ALL, QUERY, SLOT_BITS, WORDS, Counter, Stage, counts
from tests.strategies import few, slot_sets


def opened(stage: Stage, checkpoint: int | str = "latest") -> Stored:
    return Stored.open(stage.location, QUERY, checkpoint)


@few
@given(
    st.lists(st.tuples(st.lists(st.sampled_from(WORDS)), st.integers(1, 3)), min_size=1, max_size=3),
    st.sampled_from(Compression),
    slot_sets(SLOT_BITS),
)
def test_every_container_is_read_as_it_was_whoever_wrote_it(
    rounds: list[tuple[list[str], int]], codec: Compression, slots: SlotSet
) -> None:
    counter = Counter()
    with TemporaryDirectory() as root:
        stage = Stage(Path(root), codec)
        for words, parts in rounds:
            stage.take(counter.see(*words), parts=parts)
        stored = opened(stage)
        for chunk in counter.state.snapshot(slots):
            assert rows(stored.table("counter", chunk.name, slots=slots, raw=True)) == rows(chunk.rows)


def test_a_checkpoint_tells_what_there_is(stage: Stage) -> None:
    stage.take(Counter().see("be"))
    stored = opened(stage)
    assert stored.operators() == ["counter"]
    assert stored.containers("counter") == ["counts", "last page", "lists", "bids", "timers"]


def test_deletions_in_later_checkpoints_count(stage: Stage) -> None:
    counter = Counter().see(*WORDS)
    stage.take(counter)
    stage.take(counter.forget(*WORDS[:30]).see("be"))
    found = {row["word"]: row["n"] for row in opened(stage).table("counter", "counts").to_pylist()}
    assert found == counts(counter)
    assert WORDS[0] not in found


def test_python_objects_are_shown_as_json_and_given_back_as_they_were(stage: Stage) -> None:
    stage.take(Counter().see("be"))
    stored = opened(stage)
    (row,) = stored.table("counter", "last page").to_pylist()
    assert row["value"] == '{"page": 2, "tags": ["a", "b"], "day": "2026-01-31", "raw": "0x01"}'
    (value,) = unpacked(stored.table("counter", "timers", raw=True)["value"])
    assert value == ("late", 2)


@pytest.mark.parametrize("word", ["word 7", "never seen"])
def test_a_key_is_found_by_reading_its_slot_alone(stage: Stage, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter().see(*(word for word in WORDS for _ in range(200)))
    stage.take(counter, parts=1)
    stored, read = opened(stage), list[int]()
    get = stored.store.get

    def watched(key: str, start: int, length: int) -> memoryview:
        read.append(length)
        return get(key, start, length)

    monkeypatch.setattr(stored.store, "get", watched)
    found = stored.table("counter", "bids", keys={"word": word})
    assert found["word"].to_pylist() == [word] * (200 if word in WORDS else 0)
    blob = stored.container("counter", "bids").blobs[0]
    assert sum(read) < blob.index.size / 2


def test_a_key_outside_the_slots_asked_for_is_not_found(stage: Stage) -> None:
    stage.take(Counter().see("be"))
    mine = SlotSet([slot_of(hash_key("be"), SLOT_BITS)])
    stored = opened(stage)
    assert len(stored.table("counter", "counts", keys={"word": "be"}, slots=mine)) == 1
    assert len(stored.table("counter", "counts", keys={"word": "be"}, slots=ALL - mine)) == 0


@few
@given(st.integers(1, 5000), slot_sets(SLOT_BITS))
def test_pieces_are_disjoint_and_cover(group_bytes: int, slots: SlotSet) -> None:
    with TemporaryDirectory() as root:
        stage = Stage(Path(root))
        stage.take(Counter().see(*WORDS))
        container = opened(stage).container("counter", "counts")
        groups = container.groups(slots, group_bytes)
        assert [slot for group in groups for slot in group] == list(slots)
        pieces = [row for chunk in container.pieces(slots, group_bytes) for row in chunk.rows.to_pylist()]
        assert sorted(map(repr, pieces)) == sorted(map(repr, container.rows(slots).to_pylist()))


def test_pieces_are_many_when_few_bytes_are_wanted_at_a_time(stage: Stage) -> None:
    stage.take(Counter().see(*WORDS))
    container = opened(stage).container("counter", "counts")
    assert len(container.groups(group_bytes=1)) == len(ALL)
    assert len(container.groups()) == 1


def test_the_first_rows_are_as_many_as_asked_for(stage: Stage) -> None:
    stage.take(Counter().see(*WORDS))
    container = opened(stage).container("counter", "counts")
    assert [len(container.head(limit)) for limit in (0, 3, 1000)] == [0, 3, len(WORDS)]


# --- what is not there ------------------------------------------------------------------------------------------------


def test_errors_name_what_there_is_instead(stage: Stage) -> None:
    stage.take(Counter().see("be"))
    stored = opened(stage)
    with pytest.raises(UserError, match="has no complete checkpoint of query 'payments'; it has orders"):
        Stored.open(stage.location, "payments")
    with pytest.raises(UserError, match=r"there is none, or not any more; there are 1$"):
        opened(stage, 7)
    with pytest.raises(UserError, match="checkpoint 'newest' is not a checkpoint: say latest, or a number"):
        opened(stage, "newest")
    with pytest.raises(UserError, match="no state of an operator 'splitter'; it has state of counter"):
        stored.containers("splitter")
    with pytest.raises(UserError, match="has no state 'totals'; it has counts, last page, lists, bids, timers"):
        stored.table("counter", "totals")
    with pytest.raises(UserError, match="name one of counts, last page"):
        stored.table("counter")
    with pytest.raises(UserError, match="a key of state 'counts' of operator 'counter' is word; got n"):
        stored.table("counter", "counts", keys={"n": 1})
    with pytest.raises(UserError, match="key column 'word' of state 'counts'"):
        stored.table("counter", "counts", keys={"word": 7})
    with pytest.raises(UserError, match=r"has no SlotSet\(99\): its slots are 0 to 15"):
        stored.table("counter", "counts", slots=SlotSet([3, 99]))


def test_queries_and_checkpoints_are_listed(stage: Stage) -> None:
    counter = Counter().see("be")
    stage.take(counter)
    stage.take(counter, savepoint=True)
    assert queries(stage.location) == [QUERY]
    assert [(each.id, each.savepoint) for each in checkpoints(stage.location, QUERY)] == [(2, True), (1, False)]


# --- damage, and others at work ---------------------------------------------------------------------------------------


@few
@given(st.data())
def test_a_flipped_bit_of_a_blob_is_named_and_never_a_wrong_result(data: st.DataObject) -> None:
    with TemporaryDirectory() as root:
        stage = Stage(Path(root))
        stage.take(Counter().see(*WORDS[:5]), parts=1)
        file = stage.blob("counts")
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
        with pytest.raises(EnvironmentFault, match=f"{file.name} is damaged"):
            opened(stage).table("counter", "counts")


def test_a_blob_that_is_cut_or_gone_is_named(stage: Stage) -> None:
    stage.take(Counter().see("be"), parts=1)
    file = stage.blob("counts")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(EnvironmentFault, match=f"{file.name} is damaged"):
        opened(stage).table("counter", "counts")
    file.unlink()
    with pytest.raises(EnvironmentFault, match=f"nothing under .*{file.name}"):
        opened(stage).table("counter", "counts")


def test_a_checkpoint_that_is_looked_at_is_not_removed(stage: Stage) -> None:
    counter = Counter().see("be")
    stage.take(counter)
    stage.take(counter)
    with opened(stage, 1), pytest.raises(InUse, match="an inspection reads it"):
        stage.catalogue.dispose([1])
    stage.catalogue.dispose([1])


def test_whoever_may_not_write_can_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.take(Counter().see("be"))
    stored = opened(stage)

    def refuse(*_: object, **__: object) -> int:
        raise EnvironmentFault("you may not write here")

    monkeypatch.setattr(stored.store, "put", refuse)
    with stored:
        assert len(stored.table("counter", "counts")) == 1
