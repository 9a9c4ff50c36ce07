"""What a DataFrame's source is made of, without Spark: directory, ledger, spool, reader, pushes over real sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.avro_file import Damaged
from primitives.errors import EnvironmentFault, UserError
from seep.channels.links import Link, NoLinkEvents
from seep.channels.peers import Peers
from seep.channels.port import Address, Port
from seep.channels.security import Security
from seep.protocol.view import MANAGER, STORAGE
from seep.spark.inlet.intake import Intake
from seep.spark.inlet.ledger import BatchVerdict, FeedLedger
from seep.spark.inlet.pieces import Directory, Key, PushedBatch, PushedPiece
from seep.spark.inlet.push import Push, PushSettings
from seep.spark.inlet.reader import PushedReader
from seep.spark.inlet.spool import InletSpool
from seep.storage.layout import PieceKey, key_of
from seep.storage.memory import MemoryStore
from seep.storage.settings import StorageSettings
from seep.storage.store import AlreadyThere

SCHEMA = pa.schema([("n", pa.int64())])
NEVER = -(2**63)


def piece(partition: int, rows: int = 1, token: str = "") -> PushedPiece:
    return PushedPiece(partition, token or f"t{partition}", rows, rows * 8, ("n1", STORAGE))


def rows_of(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def position(number: int, row: int = 0) -> list[Any]:
    return [[number, row]]


# -- the directory -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(0, 8), st.data())
def test_whoever_follows_the_news_has_the_same_directory_though_some_come_twice(
    sizes: list[int], first: int, data: st.DataObject
) -> None:
    kept, follower = Directory(), Directory()
    for number, size in enumerate(sizes):
        batch = PushedBatch(number, "s", number, NEVER, tuple(map(piece, range(size))))
        kept.add(batch)
        news = kept.news([batch])
        for _ in range(data.draw(st.integers(1, 2))):
            follower.follow(news)
    kept.trim(min(first, len(sizes)))
    kept.ended = True
    follower.follow(kept.news())
    assert follower.news(follower) == kept.news(kept)
    assert follower.is_over(len(sizes))


def test_a_batch_that_was_let_go_of_is_not_taken_for_one_to_come() -> None:
    directory = Directory(first=2)
    assert directory.get(2) is None
    with pytest.raises(EnvironmentFault, match="all before 2"):
        directory.get(1)


# -- the ledger --------------------------------------------------------------------------------------------------------


@dataclass
class Ledgers:
    """Ledgers of one source, run after run."""

    spool: InletSpool | None = field(default_factory=lambda: InletSpool(MemoryStore("ledger"), "query"))
    news: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, positions: dict[int, Any] | None = None, first: int | None = None) -> FeedLedger:
        return FeedLedger("clicks", self.spool, self.news.append, positions or {}, first)


def test_batches_of_a_stream_count_once_and_in_order() -> None:
    ledger = Ledgers().begin()
    ledger.admit("s", 0, NEVER, [piece(1), piece(0)])
    assert [ledger.verdict("s", id) for id in range(3)] == [BatchVerdict.KNOWN, BatchVerdict.NEXT, BatchVerdict.GAP]
    assert ledger.verdict("other", 0) is BatchVerdict.NEXT
    [batch] = ledger.kept()
    assert [each.partition for each in batch.pieces] == [0, 1]


def test_a_run_that_goes_on_knows_what_was_admitted_after_its_positions_and_reads_it_from_storage() -> None:
    ledgers = Ledgers()
    before = ledgers.begin()
    for id in range(4):
        before.admit("s", id, NEVER, [piece(0, token=f"t{id}")])
    after = ledgers.begin({0: position(2, 5), 1: position(3)})
    assert [batch.number for batch in after.kept()] == [2, 3]
    assert after.news() | {"batches": []} == {"first": 2, "next": 4, "ended": False, "done": {"s": 3}, "batches": []}
    assert {each.holders for batch in after.kept() for each in batch.pieces} == {(STORAGE,)}
    assert [after.verdict("s", id) for id in (1, 3, 4, 5)] == [
        BatchVerdict.KNOWN,
        BatchVerdict.KNOWN,
        BatchVerdict.NEXT,
        BatchVerdict.GAP,
    ]


def test_a_run_that_begins_anew_knows_nothing_and_numbers_on() -> None:
    ledgers = Ledgers()
    ledgers.begin().admit("s", 0, NEVER, [piece(0)])
    anew = ledgers.begin()
    assert anew.verdict("s", 0) is BatchVerdict.NEXT
    assert anew.verdict("s", 1) is BatchVerdict.GAP
    anew.admit("s", 0, NEVER, [piece(0)])
    assert [batch.number for batch in anew.kept()] == [1]


def test_a_run_that_goes_on_from_the_beginning_of_its_line_takes_all_over_that_was_admitted_in_it() -> None:
    ledgers = Ledgers()
    ledgers.begin().admit("s", 0, NEVER, [piece(0)])
    anew = ledgers.begin()
    for id in range(2):
        anew.admit("t", id, NEVER, [piece(0)])
    after = ledgers.begin(first=anew.line)
    assert [batch.number for batch in after.kept()] == [1, 2]
    assert [after.verdict(stream, 0) for stream in ("s", "t")] == [BatchVerdict.NEXT, BatchVerdict.KNOWN]
    assert ledgers.begin(first=3).kept() == [], "nothing was admitted yet"


def test_two_lines_that_read_as_many_partitions_keep_their_pieces_apart() -> None:
    ledgers = Ledgers()
    assert ledgers.spool is not None
    lines = [ledgers.begin() for _ in range(2)]
    for line in lines:
        stream = line.finite_stream(4)
        ledgers.spool.put_piece(Key("clicks", stream, 0), 0, "same", rows_of(1))
        line = ledgers.begin(first=line.line)
        line.admit(stream, 0, NEVER, [piece(0, token="same")])
        lines[1] = ledgers.begin()
    old, new = ledgers.spool.get("clicks", 0), ledgers.spool.get("clicks", 1)
    ledgers.spool.remove("clicks", old)
    assert ledgers.spool.get_piece(Key("clicks", new.stream, 0), new.pieces[0]).num_rows == 1


def test_of_two_drivers_only_one_admits_a_batch() -> None:
    ledgers = Ledgers()
    one, other = ledgers.begin(), ledgers.begin()
    one.admit("s", 0, NEVER, [piece(0)])
    with pytest.raises(AlreadyThere):
        other.admit("s", 0, NEVER, [piece(0)])
    assert other.kept() == []


def test_batches_that_are_missing_in_storage_are_damage() -> None:
    ledgers = Ledgers()
    ledger = ledgers.begin()
    for id in range(3):
        ledger.admit("s", id, NEVER, [piece(0)])
    assert ledgers.spool is not None
    ledgers.spool.remove("clicks", ledger.kept()[1])
    with pytest.raises(Damaged, match="batches from 0 on"):
        ledgers.begin({0: position(0)})
    with pytest.raises(Damaged, match="batches from 7 on"):
        ledgers.begin({0: position(7)})


def test_storage_keeps_what_checkpoints_need_and_always_the_last_batch() -> None:
    ledgers = Ledgers()
    ledger = ledgers.begin()
    for id in range(3):
        ledger.admit("s", id, NEVER, [piece(0)])
    assert ledgers.spool is not None
    ledger.trim_spool(1)
    assert ledgers.spool.numbers("clicks") == [1, 2]
    ledger.trim_spool(9)
    assert ledgers.spool.numbers("clicks") == [2]
    assert ledgers.begin({0: position(3)}).verdict("s", 2) is BatchVerdict.KNOWN


def pieces_in(store: MemoryStore) -> set[tuple[str, int, str]]:
    found = map(key_of, store.list())
    return {(key.stream, key.id, key.token) for key in found if isinstance(key, PieceKey)}


def test_pieces_that_a_dead_run_has_not_admitted_go_once_this_one_has_admitted_a_batch() -> None:
    """Until then the run before may be alive, and admit them."""
    store = MemoryStore("ledger")
    ledgers = Ledgers(InletSpool(store, "query"))
    assert ledgers.spool is not None
    for stream, id, token in (("s", 0, "admitted"), ("s", 1, "dead"), ("t", 0, "dead")):
        ledgers.spool.put_piece(Key("clicks", stream, id), 0, token, rows_of(1))
    ledgers.begin().admit("s", 0, NEVER, [piece(0, token="admitted")])

    after = ledgers.begin(first=0)
    ledgers.spool.put_piece(Key("clicks", "s", 1), 0, "mine", rows_of(1))
    after.trim_spool(0)
    assert len(pieces_in(store)) == 4
    after.admit("s", 1, NEVER, [piece(0, token="mine")])
    ledgers.spool.put_piece(Key("clicks", "s", 2), 0, "under-way", rows_of(1))
    after.trim_spool(0)
    assert pieces_in(store) == {("s", 0, "admitted"), ("s", 1, "dead"), ("s", 1, "mine"), ("s", 2, "under-way")}
    after.admit("s", 2, NEVER, [])
    after.trim_spool(2)
    assert pieces_in(store) == {("s", 2, "under-way")}, "pieces of other attempts go with their batch"


def test_a_finite_dataframe_goes_on_after_the_partitions_that_were_admitted() -> None:
    ledgers = Ledgers()
    ledger = ledgers.begin()
    assert ledger.partitions_done(8) == 0
    ledger.admit("finite-8", 0, NEVER, [piece(0), piece(1)])
    ledger.admit("finite-8", 1, NEVER, [piece(2), piece(3, rows=0)])
    ledger.trim_spool(9)
    after = ledgers.begin({0: position(2)})
    assert after.partitions_done(8) == 4
    with pytest.raises(UserError, match="has 9 partitions, and when it was read first it had 8"):
        after.partitions_done(9)


def test_what_is_not_read_counts_until_the_last_slot_has_read_it() -> None:
    ledger = Ledgers(spool=None).begin()
    ledger.admit("s", 0, NEVER, [piece(0, rows=10)])
    ledger.admit("s", 1, NEVER, [piece(0, rows=1)])
    assert ledger.unread({}, 2) == 88
    assert ledger.unread({0: position(2), 1: position(0)}, 2) == 88
    assert ledger.unread({0: position(2), 1: position(1)}, 2) == 8
    assert not ledger.is_read({0: position(2), 1: position(1)}, 2)
    assert ledger.is_read({0: position(2), 1: position(2)}, 2)


# -- the reader --------------------------------------------------------------------------------------------------------


class Kept:
    """Batches of numbers in memory: `Pieces`."""

    def __init__(self, batches: list[list[list[int]]]) -> None:
        self.known, self.pieces = Directory(), dict[str, pa.RecordBatch]()
        for number, partitions in enumerate(batches):
            made = [piece(at, len(numbers), f"{number}-{at}") for at, numbers in enumerate(partitions)]
            self.known.add(PushedBatch(number, "s", number, NEVER, tuple(made)))
            self.pieces |= {each.token: rows_of(*partitions[each.partition]) for each in made}

    def directory(self, _: str) -> Directory:
        return self.known

    def rows(self, _: Key, piece: PushedPiece) -> pa.RecordBatch:
        return self.pieces[piece.token]

    def reload(self, _: str) -> None:
        raise AssertionError("nothing is ever missing here")


BATCHES = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=5), max_size=5)


@given(BATCHES, st.integers(1, 3), st.data())
def test_rows_are_the_same_in_whatever_blocks_they_are_read_and_read_again(
    batches: list[list[list[int]]], slots: int, data: st.DataObject
) -> None:
    kept = Kept(batches)
    kept.known.ended = True
    reader = PushedReader("clicks", slots, kept, SCHEMA)
    for slot in range(slots):
        expected = [n for parts in batches for at, part in enumerate(parts) if at % slots == slot for n in part]
        found, offsets, ended = [], [reader.start(slot)], not batches
        while not ended:
            block = reader.read(slot, offsets[-1], data.draw(st.integers(1, 7)))
            found += block.rows["n"].to_pylist()
            offsets.append(block.offset)
            ended = block.ended
        assert found == expected
        first, after = sorted(data.draw(st.tuples(*[st.integers(0, len(offsets) - 1)] * 2)))
        again = reader.between(slot, offsets[first], offsets[after])
        rest = reader.between(slot, offsets[after], offsets[-1])
        before = reader.between(slot, offsets[0], offsets[first])
        assert [n for rows in (*before, *again, *rest) for n in rows["n"].to_pylist()] == expected


def test_a_batch_that_is_still_to_come_is_not_waited_for() -> None:
    reader = PushedReader("clicks", 1, Kept([[[1]]]), SCHEMA)
    block = reader.read(0, [1, 0], 10)
    assert (len(block.rows), block.offset, block.ended) == (0, [1, 0], False)


# -- pushes ------------------------------------------------------------------------------------------------------------


class Silent:
    """A process that only has a port."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody should ask for {name}")


class Driver(Silent):
    """Tells tasks where to push, and nodes what was admitted."""

    def __init__(self) -> None:
        self.places: list[list[Any]] = []
        self.directory = Directory()

    def on_call(self, peer: str, method: str, body: Any) -> Any:  # noqa: ARG002
        match body:
            case {"places": "clicks"}:
                return {"stream": "s", "id": 0, "places": self.places}
            case {"directory": "clicks"}:
                return self.directory.news(self.directory)
        raise UserError(f"not asked for in these tests: {method} {body}")

    def on_fault(self, peer: str, text: str) -> None:
        raise AssertionError(f"{peer}: {text}")


@dataclass
class Cluster:
    """A driver and two nodes, as far as pushing is concerned; all in this process, over real sockets."""

    driver: Driver
    settings: PushSettings
    intakes: dict[str, Intake]
    ports: dict[str, Port]

    def push(self, partition: int, *numbers: int) -> dict[str, Any]:
        pushed = Push(self.settings, partition)
        pushed.send(rows_of(*numbers))
        receipt: dict[str, Any] = pushed.receipt().to_pylist()[0]
        return receipt

    def admit(self, *receipts: dict[str, Any]) -> list[PushedPiece]:
        pieces = [
            PushedPiece(r["partition"], r["token"], r["rows"], r["nbytes"], tuple(r["holders"])) for r in receipts
        ]
        self.driver.directory.add(PushedBatch(self.driver.directory.next, "s", 0, NEVER, tuple(pieces)))
        for intake in self.intakes.values():
            intake.on_news("clicks", self.driver.directory.news(self.driver.directory))
        return pieces

    def holds(self, node: str, token: str) -> bool:
        alone = PushedPiece(0, token, 1, 8, ())  # no other holder is known that could be asked
        try:
            self.intakes[node].rows(KEY, alone)
        except EnvironmentFault:
            return False
        return True


KEY = Key("clicks", "s", 0)


@contextmanager
def cluster(directory: Path, storage: StorageSettings | None = None) -> Iterator[Cluster]:
    security, driver, storage = Security.open(), Driver(), storage or StorageSettings()
    port = Port("127.0.0.1", security, driver)
    intakes = {name: Intake("query", storage, security, directory / name) for name in ("n1", "n2")}
    ports = {name: Port("127.0.0.1", security, Silent(), shop=intake) for name, intake in intakes.items()}
    driver.places = [[name, *port.address] for name, port in ports.items()]
    peers = [Peers(name, security, Silent()) for name in intakes]
    for mine, intake in zip(peers, intakes.values(), strict=True):
        mine.know(MANAGER, port.address)
        for name, other in ports.items():
            mine.know(name, other.address)
        intake.open(mine, threading.Event())
    try:
        yield Cluster(driver, PushSettings("clicks", SCHEMA, None, port.address, security), intakes, ports)
    finally:
        for mine in peers:
            mine.close()
        for each in (*ports.values(), port):
            each.close()


def test_a_piece_is_on_two_nodes_when_it_is_pushed_and_each_gives_it_to_others(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        receipt = running.push(0, 1, 2, 3)
        assert (receipt["rows"], receipt["holders"]) == (3, ["n1", "n2"])
        [admitted] = running.admit(receipt)
        running.ports["n1"].close()
        del running.intakes["n1"]._held[admitted.token]
        assert running.intakes["n1"].rows(KEY, admitted) == rows_of(1, 2, 3)


def test_a_push_goes_on_as_long_as_one_node_takes_it_and_says_which(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        pushed = Push(running.settings, 0)
        pushed.send(rows_of(1))
        running.ports["n2"].close()
        pushed.send(rows_of(2))
        [receipt] = pushed.receipt().to_pylist()
        assert receipt["holders"] == ["n1"]
        assert receipt["why"].startswith("n2: ")
        [admitted] = running.admit(receipt)
        assert running.intakes["n1"].rows(KEY, admitted) == rows_of(1, 2)


def test_of_a_push_that_breaks_off_nothing_is_there(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        pushed = Push(running.settings, 0)
        pushed.send(rows_of(1))
        pushed.close()
        running.push(1, 2)  # over the same ports, so what came before has been dealt with
        assert not running.holds("n1", pushed._token)


def test_only_the_attempt_that_spark_counts_stays_and_later_ones_are_not_kept(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        first, counted = running.push(0, 1, 2), running.push(0, 2, 1)
        assert running.holds("n1", first["token"])
        running.admit(counted)
        assert not running.holds("n1", first["token"])
        assert running.holds("n2", counted["token"])
        late = running.push(0, 1, 2)
        assert late["holders"], "a task that is late is no failure"
        assert not running.holds("n1", late["token"])


def test_what_is_let_go_of_is_held_no_more(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        [admitted] = running.admit(running.push(0, 1))
        running.driver.directory.trim(1)
        running.intakes["n1"].on_news("clicks", running.driver.directory.news())
        assert not running.holds("n1", admitted.token)


def test_a_node_becomes_a_holder_by_a_copy_of_another_ones(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        running.driver.places = running.driver.places[:1]
        receipt = running.push(0, 7)
        assert receipt["holders"] == ["n1"]
        [admitted] = running.admit(receipt)
        assert running.intakes["n2"].on_call("copy piece", {"key": list(KEY), "piece": admitted.to_plain()})
        assert running.holds("n2", admitted.token)


def test_with_storage_a_piece_outlives_all_nodes(tmp_path: Path) -> None:
    storage = StorageSettings(location=str(tmp_path / "storage"))
    with cluster(tmp_path / "before", storage) as running:
        receipt = running.push(0, 4, 5)
    with cluster(tmp_path / "after", storage) as running:
        stored = PushedPiece(0, receipt["token"], 2, 16, ("n1", STORAGE))
        running.ports["n1"].close()
        assert running.intakes["n2"].rows(KEY, stored) == rows_of(4, 5)


def test_nobody_pushes_without_the_token_of_the_run(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        stranger = PushSettings("clicks", SCHEMA, None, running.settings.driver, Security.open())
        with pytest.raises(EnvironmentFault, match="token"):
            Push(stranger, 0).send(rows_of(1))


def test_a_port_without_a_shop_takes_no_rows(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        port = Port("127.0.0.1", running.settings.security, Silent())
        running.driver.places = [["n3", *port.address]]
        try:
            assert running.push(0, 1)["holders"] == []
        finally:
            port.close()


def test_a_node_asks_how_it_stands_before_it_reads(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        running.driver.directory.add(PushedBatch(0, "s", 0, NEVER, ()))
        assert running.intakes["n1"].directory("clicks").next == 1


def test_links_for_one_call_leave_no_thread() -> None:
    threads = set(threading.enumerate())
    link = Link("task", MANAGER, Address("127.0.0.1", 1), Security.open(), NoLinkEvents())
    with pytest.raises(EnvironmentFault, match="did not answer"):
        link.call("pushed", {}, timeout=1.0)
    link.close()
    assert set(threading.enumerate()) <= threads
