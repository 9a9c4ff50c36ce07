"""seep.testing: runs in this process are deterministic, and whatever befalls them makes no difference to the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import seep
from policies.balance.settings import BalanceSettings
from policies.observation import History
from policies.scaling.decision import Decision
from policies.scaling.settings import DetectorSettings, ScalingSettings
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.query.query import Query
from seep.query.stream import Stream
from seep.sinks.definition import SinkDefinition, SinkFenced, SinkStore, StoreSite
from seep.testing import BackUp, InProcess, Kill, Notice, Pause, Restart, Savepoint, Scale, rows, run, script

EPOCHS = 24


def batches() -> list[pa.RecordBatch]:
    rng = np.random.default_rng(7)
    return [
        pa.record_batch({"key": rng.integers(0, 40, 20), "value": rng.integers(0, 100, 20), "at": [epoch * 10] * 20})
        for epoch in range(EPOCHS)
    ]


def with_cues(*cues: tuple[int, Any]) -> list[Any]:
    items: list[Any] = batches()
    for after, cue in sorted(cues, key=lambda pair: pair[0], reverse=True):
        items.insert(after, cue)
    return items


def windows(stream: Stream) -> Stream:
    return stream.key_by("key").window(seep.tumbling(30)).aggregate("counter", n=seep.count(), s=seep.sum("value"))


def sessions(stream: Stream) -> Stream:
    return stream.key_by("key").window(seep.session(20)).aggregate("counter", n=seep.count())


def totals(stream: Stream) -> Stream:
    return stream.key_by("key").aggregate("counter", n=seep.count(), last=seep.last("value"))


def self_join(stream: Stream) -> Stream:
    keyed = stream.key_by("key")
    return keyed.join("counter", keyed, window=seep.tumbling(40))


def machine(stream: Stream) -> Stream:
    def fold(state: int | None, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return (state or 0) + row["value"], {"key": row["key"], "sum": (state or 0) + row["value"]}

    schema = pa.schema([("key", pa.int64()), ("sum", pa.int64())])
    return stream.key_by("key").state_machine("counter", fold, schema=schema)


def query_of(work: Callable[[Stream], Stream], items: list[Any] | None = None) -> Query:
    query = seep.Query("test")
    source = query.source("source", script(*(items or batches()), time="at"))
    work(source.map("mapper", lambda batch: batch)).sink("out", seep.sinks.collect())
    return query


#: What may befall a run of the queries above.
STORIES = {
    "the counter is killed": [(9, Kill("counter"))],
    "the counter is killed twice": [(5, Kill("counter")), (6, Kill("counter"))],
    "every operator is killed": [(4, Kill("source")), (8, Kill("mapper")), (12, Kill("counter")), (16, Kill("out"))],
    "the counter grows": [(4, Scale("counter", 3))],
    "the counter grows and shrinks": [(2, Scale("counter", 4)), (12, Scale("counter", 1))],
    "the counter dies as it grows": [(4, Scale("counter", 3)), (6, Kill("counter")), (8, Kill("counter"))],
    "the mapper grows, and then dies": [(3, Scale("mapper", 2)), (11, Kill("mapper", 1))],
    "there are pauses": [(3, Pause(4)), (9, Pause())],
    "a checkpoint, and a kill right after it": [(9, BackUp("counter")), (10, Kill("counter"))],
    "it is started again without a savepoint": [(9, Restart())],
    "it is started again from a savepoint": [(5, Savepoint()), (11, Restart())],
    "it is started again from the second savepoint": [(5, Savepoint()), (9, Savepoint()), (9, Restart())],
    "it is started again twice": [(5, Savepoint()), (9, Restart()), (10, Kill("counter")), (14, Restart())],
    "it is started again with other instances": [(5, Savepoint()), (11, Restart({"counter": 3, "out": 2}))],
    "it ends with a savepoint, and is started again": [(EPOCHS, Savepoint()), (EPOCHS, Restart())],
    "the counter dies as a savepoint is taken": [(5, Savepoint()), (5, Kill("counter")), (11, Restart())],
    "every node has notice": [
        (4, Notice("source")),
        (8, Notice("mapper")),
        (12, Notice("counter")),
        (16, Notice("out")),
    ],
    "a node has notice, then the new one dies": [(4, Notice("counter")), (9, Kill("mapper"))],
}


@pytest.mark.parametrize("work", [windows, sessions, totals, self_join, machine], ids=lambda work: work.__name__)
@pytest.mark.parametrize("story", STORIES)
def test_whatever_happens_the_rows_are_the_same(work: Callable[[Stream], Stream], story: str) -> None:
    undisturbed = rows(run(query_of(work))["out"])
    assert undisturbed.total() > 100
    for seed in (None, 1):
        assert rows(run(query_of(work, with_cues(*STORIES[story])), seed=seed)["out"]) == undisturbed


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_messages_makes_no_difference(seed: int) -> None:
    parallelism = {"mapper": 2, "counter": 3, "out": 2}
    expected = rows(run(query_of(totals))["out"])
    assert rows(run(query_of(totals), seed=seed, parallelism=parallelism)["out"]) == expected


def test_the_same_seed_gives_the_same_run() -> None:
    def history(seed: int) -> tuple[list[Any], pa.Table]:
        with InProcess(query_of(totals, with_cues(*STORIES["every operator is killed"])), seed=seed) as process:
            process.run()
            return process.events, process.tables["out"]

    assert history(3) == history(3)


# -- by hand -----------------------------------------------------------------------------------------------------------


def pulsed(process: InProcess, times: int) -> None:
    for _ in range(times):
        process.pulse()
        process.settle()


def test_nothing_happens_between_calls() -> None:
    with InProcess(query_of(totals)) as process:
        process.settle()
        assert process.epoch == 0
        assert process.pulse()
        assert process.tables["out"].num_rows == 0
        process.settle()
        assert process.tables["out"].num_rows > 0
        assert not process.step()


def test_a_slow_query_gets_no_more_epochs() -> None:
    with InProcess(query_of(totals)) as process:
        opened = sum(process.pulse() for _ in range(50))
        assert opened == process.epoch < 50
        process.run()
        assert process.finished


def test_slots_are_moved_by_hand() -> None:
    with InProcess(query_of(totals)) as process:
        pulsed(process, 3)
        process.move("counter", {1: range(100), 2: SlotSet.range(100, 120)})
        assert process.instances("counter") == [0, 1, 2]
        process.kill("counter", 2)
        process.run()
        assert "move complete" in [event.kind for event in process.events]
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_a_run_goes_on_from_its_savepoint_and_not_from_its_beginning() -> None:
    """Run, savepoint, more rows, restart: what was read before the savepoint is not read again."""
    read: list[int] = []

    def seen(batch: pa.RecordBatch) -> pa.RecordBatch:
        read.extend(set(batch["at"].to_pylist()))
        return batch

    query = seep.Query("test")
    story = script(*with_cues((5, Savepoint()), (9, Restart())), time="at")
    totals(query.source("source", story).map("mapper", seen)).sink("out", seep.sinks.collect())
    found = run(query)["out"]
    again = {at for at in read if read.count(at) > 1}
    assert again == {50, 60, 70}  # the ninth was on its way to the mapper
    assert rows(found) == rows(run(query_of(totals))["out"])


def test_a_savepoint_is_complete_before_the_script_is_read_on() -> None:
    """Even if epochs were opened far ahead of it."""
    with InProcess(query_of(totals, with_cues((5, Savepoint())))) as process:
        while process.pulse():
            pass
        process.settle()
        while process.manager.cuts.complete_epoch is None:
            assert process.tables["out"].num_rows == sum(tables_after(5))
            pulsed(process, 1)
        process.restart()
        assert process.tables["out"].num_rows == sum(tables_after(5))
        process.run()
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def tables_after(epochs: int) -> list[int]:
    """How many rows `totals` puts out in each of the first epochs: one per key."""
    return [len(set(batch["key"].to_pylist())) for batch in batches()[:epochs]]


def test_a_savepoint_by_hand_is_what_a_restart_begins_from() -> None:
    with InProcess(query_of(totals), nodes=4) as process:
        pulsed(process, 4)
        saved = process.savepoint()
        pulsed(process, 5)
        assert process.epoch > saved
        process.restart(parallelism={"counter": 4})
        assert process.epoch == saved
        assert process.instances("counter") == [0, 1, 2, 3]
        process.run()
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_a_finished_run_is_started_again_from_its_savepoint() -> None:
    with InProcess(query_of(totals)) as process:
        pulsed(process, 4)
        process.savepoint()
        process.run()
        expected = rows(process.tables["out"])
        process.restart()
        assert not process.finished
        assert rows(process.tables["out"]) != expected
        process.run()
        assert rows(process.tables["out"]) == expected


def test_a_node_with_notice_is_emptied_and_then_gone() -> None:
    with InProcess(query_of(totals), checkpoint_every=2) as process:
        pulsed(process, 4)
        leaving = process.manager.placement[InstanceId("counter", 0)].node
        process.notice("counter")
        assert leaving in process.nodes
        pulsed(process, 12)
        assert leaving not in process.nodes
        process.run()
        kinds = [event.kind for event in process.events]
        assert "node leaving" in kinds
        assert "restored" not in kinds
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_an_operator_grows_and_shrinks_by_hand() -> None:
    with InProcess(query_of(totals)) as process:
        pulsed(process, 2)
        process.scale_out("counter", 3)
        pulsed(process, 10)
        assert process.instances("counter") == [0, 1, 2]
        process.scale_in("counter", 2)
        pulsed(process, 1)
        assert process.instances("counter") == [0, 1]
        process.run()
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_a_kill_in_the_middle_of_an_epoch() -> None:
    expected = rows(run(query_of(windows))["out"])
    for steps in range(0, 40, 3):
        with InProcess(query_of(windows), nodes=4) as process:
            pulsed(process, 5)
            process.pulse()
            for _ in range(steps):
                process.step()
            process.kill("counter")
            process.run()
            assert rows(process.tables["out"]) == expected


def test_a_killed_counter_comes_back_from_its_backup() -> None:
    with InProcess(query_of(totals), checkpoint_every=2) as process:
        pulsed(process, 9)
        process.kill("counter")
        process.run()
        kinds = [event.kind for event in process.events]
        assert kinds.index("node lost") < kinds.index("rebound") < kinds.index("restored")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.kill("countre"), "there is no instance 0 of operator 'countre' to kill"),
        (lambda p: p.kill("counter", 5), "there is no instance 5 of operator 'counter' to kill"),
        (lambda p: p.scale_out("countre", 2), "there is no operator 'countre' to scale"),
        (lambda p: p.scale_out("counter", 1), "slots of operator 'counter' cannot be moved: it moves nothing"),
        (lambda p: p.move("counter", {1: [1000]}), "it names an operator, instance or slot that does not exist"),
        (lambda p: p.checkpoint("countre"), "there is no operator 'countre'"),
        (lambda p: p.notice("countre"), "there is no instance 0 of operator 'countre' whose node could leave"),
        (lambda p: p.scale("countre", 2), "there is no operator 'countre' to scale"),
        (lambda p: p.migrate("countre", 2), "there is no operator 'countre'"),
        (lambda p: p.balance("counter"), "counter has one instance"),
        (lambda p: p.drain("nowhere"), "there is no node 'nowhere'"),
        (lambda p: p.progress(7), "there is no migration 7"),
        (lambda p: p.restart({"countre": 2}), "there is no operator 'countre' to have 2 instances"),
        (lambda p: (p.run(), p.savepoint()), "query 'test' ends before a savepoint of it could be complete"),
    ],
)
def test_what_cannot_be_done_is_said(call: Callable[[InProcess], None], message: str) -> None:
    with InProcess(query_of(totals)) as process, pytest.raises(seep.UserError, match=message):
        call(process)


def test_state_without_any_copy_is_reported_as_lost() -> None:
    with InProcess(query_of(totals), nodes=2, checkpoint_every=1) as process:
        pulsed(process, 6)
        process.manager.node_lost(process.manager.backups[next(iter(process.manager.backups))].holders[0])
        with pytest.raises(seep.EnvironmentFault, match=r"the state of counter\[0\] after epoch \d+ is lost"):
            process.kill("counter")


def test_a_query_without_end_is_not_run_for_ever() -> None:
    numbers = seep.sources.generator(lambda _, first, n: {"n": range(first, first + n)}, pa.schema([("n", pa.int64())]))
    query = seep.Query("endless")
    query.source("numbers", numbers).sink("out", seep.sinks.discard())
    with pytest.raises(seep.UserError, match="query 'endless' has not ended after 20 epochs; give it sources that end"):
        run(query, epochs=20)


def test_rates_do_not_hold_a_test_up() -> None:
    query = seep.Query("slow")
    query.source("rows", seep.sources.memory(batches()), rate=0.001).sink("out", seep.sinks.collect())
    assert run(query)["out"].num_rows == EPOCHS * 20


def test_the_rows_of_an_epoch_can_be_limited() -> None:
    query = seep.Query("memory")
    query.source("rows", seep.sources.memory(batches())).sink("out", seep.sinks.collect())
    with InProcess(query, rows_per_epoch=7) as process:
        process.pulse()
        process.settle()
        assert process.tables["out"].num_rows == 7
        process.run()
        assert process.tables["out"].num_rows == EPOCHS * 20


# -- the steward -------------------------------------------------------------------------------------------------------


class AsManyAsRows:
    """A policy of a test: one instance of the counter more, while one of them gets more than ten rows a second."""

    def decide(self, history: History) -> list[Decision]:
        reports = history.observations[-1].of("counter")
        if history.is_changing("counter") or not any(report.rows_in > 10 for report in reports):
            return []
        return [Decision("counter", len(reports) + 1, "too many rows")]


class Broken:
    def decide(self, history: History) -> list[Decision]:
        raise ZeroDivisionError(f"at {history.now}")


def kinds_of(process: InProcess) -> list[str]:
    return [event.kind for event in process.events]


def test_a_policy_of_a_test_scales_its_query() -> None:
    settings = ScalingSettings(
        policy="tests.test_testing:AsManyAsRows", detector=DetectorSettings(report=1.0), cooldown=1.0
    )
    with InProcess(query_of(totals), scaling=settings) as process:
        process.run()
        assert len(process.instances("counter")) > 1
        assert {"scaling out", "scaled out"} <= {*kinds_of(process)}
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_a_shipped_policy_scales_by_the_rows_that_an_instance_has_the_capacity_for() -> None:
    settings = ScalingSettings(policy="cpu-threshold", detector=DetectorSettings(report=1.0), cooldown=1.0)

    def instances(capacity: float) -> int:
        with InProcess(query_of(totals), scaling=settings, capacity=capacity) as process:
            process.run()
            return len(process.instances("counter"))

    assert instances(capacity=1_000) == 1
    assert instances(capacity=15) > 1


def test_a_policy_that_raises_costs_the_query_nothing() -> None:
    with InProcess(query_of(totals), scaling=Broken()) as process:
        process.run()
        assert "scaling failed" in kinds_of(process)
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_an_operator_is_scaled_and_its_slots_migrate_as_the_steward_is_asked() -> None:
    with InProcess(query_of(totals), nodes=4) as process:
        pulsed(process, 2)
        process.scale("counter", 3)
        pulsed(process, 10)
        assert process.instances("counter") == [0, 1, 2]
        number = process.migrate("counter", 2, strategy="batched", batch=50)
        process.run()
        assert process.progress(number).state == "done"
        assert process.progress(number).steps > 1
        assert rows(process.tables["out"]) == rows(run(query_of(totals))["out"])


def test_a_balancer_moves_hot_slots() -> None:
    hot = [
        pa.record_batch({"key": [key % 5 for key in range(20)], "value": [1] * 20, "at": [10 * e] * 20})
        for e in range(40)
    ]
    settings = BalanceSettings(enabled=True, window=2.0)
    with InProcess(query_of(totals, hot), parallelism={"counter": 2}, balance=settings, nodes=4) as process:
        process.run()
        assert "balancing" in kinds_of(process)


def test_a_node_is_drained_by_its_name() -> None:
    with InProcess(query_of(totals), nodes=3) as process:
        pulsed(process, 2)
        node = process.manager.placement[InstanceId("counter", 0)].node
        process.drain(node)
        process.run()
        assert node not in process.nodes
        assert "drained" in kinds_of(process)


# -- scripts -----------------------------------------------------------------------------------------------------------


def test_a_script_is_read_one_batch_per_epoch() -> None:
    with InProcess(query_of(totals, [*batches()[:2], Pause(2), batches()[2]])) as process:
        sizes = []
        while not process.finished:
            before = process.tables["out"].num_rows
            pulsed(process, 1)
            sizes.append(process.tables["out"].num_rows - before)
        assert [size > 0 for size in sizes] == [True, True, False, False, True, False]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "a script needs at least one batch"),
        ([Pause(3)], "a script needs at least one batch"),
        ([pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})], "must have the same columns"),
        (["KILL"], "a script is made of record batches, Kill, .*, Savepoint, Restart, Notice and Pause, not of 'KILL'"),
    ],
)
def test_a_script_that_makes_no_sense(items: list[Any], message: str) -> None:
    with pytest.raises(seep.UserError, match=message):
        script(*items)


def test_a_cue_that_comes_too_late_is_reported() -> None:
    items = with_cues((EPOCHS - 2, Scale("counter", 3)), (EPOCHS - 1, Scale("counter", 2)))
    with pytest.raises(
        seep.UserError,
        match=r"before its script came to Scale\(operator='counter', parallelism=2\)",
    ):
        run(query_of(totals, items))


def test_the_watermark_of_a_script_lags_as_it_is_told() -> None:
    given = [pa.record_batch({"key": [1], "at": [at]}) for at in (0, 12, 8, 30)]
    for out_of_order, expected in ((0, [1, 1, 1]), (5, [2, 1, 1])):
        query = seep.Query("late")
        stream = query.source("source", script(*given, time="at", out_of_order=out_of_order))
        counted = stream.key_by("key").window(seep.tumbling(10)).aggregate("counter", n=seep.count())
        counted.sink("out", seep.sinks.collect())
        assert run(query)["out"]["n"].to_pylist() == expected


# -- sinks -------------------------------------------------------------------------------------------------------------


class Rolling(SinkDefinition):
    """Makes every fifth epoch durable, with those before it, in a dictionary that outlives nodes."""

    def __init__(self, place: StoreSite) -> None:
        self.place = place
        self.durable: dict[Any, list[tuple[int, list[pa.RecordBatch]]]] = {}
        self.closed = 0

    @property
    def roll(self) -> int:
        return 5

    def check(self, operator: str, schema: pa.Schema) -> None:
        pass

    def store(self, operator: str, schema: pa.Schema) -> SinkStore:  # noqa: ARG002
        return RollingStore(self)


class RollingStore(SinkStore):
    def __init__(self, definition: Rolling) -> None:
        self._definition = definition
        self._open: dict[Any, list[tuple[int, list[pa.RecordBatch]]]] = {}
        self._number: dict[Any, int] = {}

    def open(self, sink: Any) -> int:
        self._number[sink.instance] = sink.number
        self._open[sink.instance] = []
        return self._last(sink.instance)

    def commit(self, sink: Any, epoch: int, batches: Any, watermark: int) -> int:
        if sink.number < self._number[sink.instance]:
            raise SinkFenced
        pending = self._open[sink.instance]
        assert epoch == (pending[-1][0] if pending else self._last(sink.instance)) + 1
        pending.append((epoch, list(batches)))
        if epoch % 5 == 0 or watermark == 2**63 - 1:
            self._definition.durable.setdefault(sink.instance, []).extend(pending)
            self._open[sink.instance] = []
        return self._last(sink.instance)

    def close(self) -> None:
        self._definition.closed += 1

    def _last(self, instance: Any) -> int:
        done = self._definition.durable.get(instance)
        return done[-1][0] if done else 0


@pytest.mark.parametrize("place", StoreSite)
def test_stores_at_nodes_and_at_the_driver_get_each_epoch_once(
    place: StoreSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seep.query.compiler.check_travels", lambda *_: None)
    sink = Rolling(place)
    query = seep.Query("test")
    stream = query.source("source", script(*with_cues((7, Kill("out")), (12, Kill("out", 1))), time="at"))
    totals(stream).sink("out", sink, parallelism=2)
    tables = run(query)
    durable = [batch for done in sink.durable.values() for _, batches in done for batch in batches]
    assert rows(pa.Table.from_batches(durable)) == rows(tables["out"]) == rows(run(query_of(totals))["out"])
    assert sink.closed == (1 if place is StoreSite.DRIVER else 2)


@pytest.mark.parametrize("roll", [1, 4])
@pytest.mark.parametrize("savepoint", [[(6, Savepoint())], []], ids=["from a savepoint", "from the beginning"])
def test_file_sinks_take_back_what_comes_again_after_a_restart(
    tmp_path: Path, savepoint: list[tuple[int, Any]], roll: int
) -> None:
    query = seep.Query("files")
    story = with_cues(*savepoint, (9, Restart({"out": 2})), (13, Restart()), (15, Kill("out")))
    totals(query.source("source", script(*story, time="at"))).sink("out", seep.sinks.parquet(tmp_path, roll=roll))
    tables = run(query)
    assert rows(seep.sinks.read(tmp_path)) == rows(tables["out"]) == rows(run(query_of(totals))["out"])


def test_file_sinks_write_their_files(tmp_path: Path) -> None:
    query = seep.Query("files")
    stream = query.source("source", script(*with_cues((7, Kill("out"))), time="at"))
    totals(stream).sink("out", seep.sinks.parquet(tmp_path / "out"))
    tables = run(query)
    assert rows(seep.sinks.read(tmp_path / "out")) == rows(tables["out"])
