"""File sinks: every epoch exactly once, whatever is killed when, and nothing from those that were given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from formats import files
from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.graph import InstanceId
from seep import sinks
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.sinks import fencing, file_store
from seep.sinks.definition import SinkDefinition, SinkFenced, SinkStore
from seep.sinks.layout import OutputLayout

SCHEMA = pa.schema([("epoch", pa.int64()), ("sink", pa.int64())])


class Killed(BaseException):
    """Stands for the end of the process: nothing in the store may catch it."""


def life(number: int, index: int = 0) -> Incarnation:
    return Incarnation(InstanceId("out", index), number)


def rows(epoch: int, index: int = 0) -> list[pa.RecordBatch]:
    """Every third epoch has no rows; the others have one or two."""
    return [
        pa.record_batch({"epoch": [epoch] * (epoch % 3), "sink": pa.array([index] * (epoch % 3), pa.int64())}, SCHEMA)
    ]


def expected(last: int, index: int = 0) -> list[dict[str, int]]:
    return [row for epoch in range(1, last + 1) for row in rows(epoch, index)[0].to_pylist()]


def opened(definition: SinkDefinition, number: int, index: int = 0) -> tuple[SinkStore, int]:
    store = definition.store("out", SCHEMA)
    return store, store.open(life(number, index))


def run_on(store: SinkStore, number: int, after: int, last: int = 20, index: int = 0) -> int:
    """Commits all epochs after one, as a sink instance does; returns the last durable one."""
    durable_epoch = after
    for epoch in range(after + 1, last + 1):
        watermark = MAX_WATERMARK if epoch == last else epoch
        durable_epoch = store.commit(life(number, index), epoch, rows(epoch, index), watermark)
    return durable_epoch


@pytest.fixture(params=["parquet", "csv", "json_lines"])
def make(request: pytest.FixtureRequest) -> Callable[..., SinkDefinition]:
    return getattr(sinks, request.param)  # type: ignore[no-any-return]


# -- without failures -------------------------------------------------------------------------------------------------


def test_rows_are_read_back_in_order_of_epochs(tmp_path: Path, make: Callable[..., SinkDefinition]) -> None:
    store, begin = opened(make(tmp_path / "out", roll=4), 0)
    assert begin == 0
    assert run_on(store, 0, 0) == 20
    table = sinks.read(tmp_path / "out")
    assert (table.schema, table.to_pylist()) == (SCHEMA, expected(20))


def test_epochs_are_durable_when_a_roll_is_full(tmp_path: Path) -> None:
    store, _ = opened(sinks.parquet(tmp_path, roll=3), 0)
    assert [store.commit(life(0), epoch, rows(epoch), 0) for epoch in range(1, 8)] == [0, 0, 3, 3, 3, 6, 6]
    assert sinks.read(tmp_path).to_pylist() == expected(6)


def test_the_last_epoch_is_durable_at_once(tmp_path: Path) -> None:
    store, _ = opened(sinks.parquet(tmp_path), 0)
    store.commit(life(0), 1, rows(1), 0)
    assert store.commit(life(0), 2, rows(2), MAX_WATERMARK) == 2
    assert store.commit(life(0), 3, [], MAX_WATERMARK) == 3


def test_many_rows_are_durable_before_a_roll_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "_MOST_BYTES", 100)
    store, _ = opened(sinks.parquet(tmp_path), 0)
    batch = pa.record_batch([pa.array(range(10), pa.int64())] * 2, schema=SCHEMA)
    assert store.commit(life(0), 1, [batch], 0) == 1


def test_rows_of_instances_are_in_order_of_epoch_and_instance(tmp_path: Path) -> None:
    definition = sinks.parquet(tmp_path, roll=1)
    for index in (1, 0):
        run_on(opened(definition, 0, index)[0], 0, 0, last=4, index=index)
    found = [(row["epoch"], row["sink"]) for row in sinks.read(tmp_path).to_pylist()]
    assert found == [(1, 0), (1, 1), (2, 0), (2, 0), (2, 1), (2, 1), (4, 0), (4, 1)]


def test_a_run_without_rows_leaves_its_columns(tmp_path: Path, make: Callable[..., SinkDefinition]) -> None:
    definition = make(tmp_path)
    for index in range(2):
        store, _ = opened(definition, 0, index)
        store.commit(life(0, index), 1, [], MAX_WATERMARK)
    assert sinks.read(tmp_path).equals(SCHEMA.empty_table())
    assert len(OutputLayout(tmp_path).parts()) == 1


def test_other_readers_see_the_parts_only(tmp_path: Path) -> None:
    import pyarrow.dataset as dataset

    run_on(opened(sinks.parquet(tmp_path, roll=4), 0)[0], 0, 0)
    assert dataset.dataset(tmp_path, format="parquet").to_table().sort_by("epoch").to_pylist() == expected(20)


# -- crashes ----------------------------------------------------------------------------------------------------------

STEPS = ("write", "publish", "enter", "remove", "sync_directory")


def crash_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> Callable[[], int]:
    """Lets the process die before or after the given one of all steps on disk; returns how many there were."""
    passed = 0

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal passed
            for is_after in (False, True):
                passed += 1
                if passed == moment:
                    raise Killed
                if not is_after:
                    result = step(*arguments)
            return result

        return call

    for name in STEPS:
        monkeypatch.setattr(file_store, name, dying(getattr(file_store, name)))
    return lambda: passed


def lives(definition: SinkDefinition, kills: list[int]) -> None:
    """A sink instance in as many lives as it takes; each dies at a step, until the last one goes through.

    Every other life makes its rolls shorter, so that none happens to write the very same parts as the one before.
    """
    for number, moment in enumerate([*kills, 0]):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, moment)
            patch.setattr(file_store, "_MOST_BYTES", 40 if number % 2 else 1 << 20)
            try:
                store, begin = opened(definition, number)
                assert begin <= 20
                run_on(store, number, begin)
                return
            except Killed:
                continue
    raise AssertionError("the last life ended as well")


def test_every_step_of_a_store_may_be_the_last(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        steps = crash_at(patch, 0)
        store, begin = opened(sinks.parquet(tmp_path / "whole", roll=7), 0)
        run_on(store, 0, begin)
    assert steps() > 20
    for moment in range(1, steps() + 1):
        definition = sinks.parquet(tmp_path / str(moment), roll=7)
        lives(definition, [moment])
        assert sinks.read(tmp_path / str(moment)).to_pylist() == expected(20)


@hypothesis_settings(max_examples=40)
@given(st.lists(st.integers(1, 60), max_size=6), st.integers(1, 8))
def test_any_number_of_crashes_leaves_each_epoch_once(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], roll: int
) -> None:
    home = tmp_path_factory.mktemp("sink")
    lives(sinks.parquet(home, roll=roll), kills)
    assert sinks.read(home).to_pylist() == expected(20)


def test_after_a_crash_a_store_tells_the_last_durable_epoch(tmp_path: Path) -> None:
    definition = sinks.parquet(tmp_path, roll=3)
    store, _ = opened(definition, 0)
    for epoch in range(1, 6):
        store.commit(life(0), epoch, rows(epoch), 0)
    assert opened(definition, 1)[1] == 3


def test_epochs_without_rows_are_known_after_a_crash(tmp_path: Path) -> None:
    definition = sinks.parquet(tmp_path, roll=2)
    store, _ = opened(definition, 0)
    for epoch in range(1, 7):
        store.commit(life(0), epoch, [], 0)
    assert opened(definition, 1)[1] == 6
    assert OutputLayout(tmp_path).parts() == []


CHILD = """
import os, signal, sys
from pathlib import Path
from tests.sinks.test_file_store import definition_of, opened, run_on
from seep.sinks import file_store

moment, passed = int(sys.argv[2]), 0

def dying(step):
    def call(*arguments):
        global passed
        passed += 1
        if passed == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*arguments)
    return call

definition = definition_of(Path(sys.argv[1]))
for name in ("write", "publish"):
    setattr(file_store, name, dying(getattr(file_store, name)))
store, begin = opened(definition, int(sys.argv[3]))
run_on(store, int(sys.argv[3]), begin)
"""


def definition_of(home: Path) -> SinkDefinition:
    """The same definition in every process: a definition travels, and its run with it."""
    definition = sinks.parquet(home, roll=3)
    definition._run = "20260101T000000000000-0000"
    return definition


def child(home: Path, moment: int, number: int) -> int:
    """A process that is killed at a moment; its exit status."""
    return subprocess.run([sys.executable, "-c", CHILD, home, str(moment), str(number)], cwd=ROOT).returncode


ROOT = Path(__file__).parent.parent.parent


def test_a_process_that_is_killed_leaves_nothing_twice(tmp_path: Path) -> None:
    assert [child(tmp_path, moment, number) for number, moment in enumerate((6, 5, 1000))] == [-signal.SIGKILL] * 2 + [
        0
    ]
    assert sinks.read(tmp_path).to_pylist() == expected(20)


# -- those that were given up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_one_that_was_given_up_commits_nothing_more(tmp_path: Path, begun: int) -> None:
    definition = sinks.parquet(tmp_path, roll=3)
    zombie, _ = opened(definition, 0)
    for epoch in range(1, begun + 1):
        zombie.commit(life(0), epoch, rows(epoch), 0)
    store, begin = opened(definition, 1)
    with pytest.raises(SinkFenced):
        run_on(zombie, 0, begun, last=4)
    run_on(store, 1, begin)
    assert sinks.read(tmp_path).to_pylist() == expected(20)


def test_one_that_was_given_up_and_opens_late_hears_of_it_at_its_first_commit(tmp_path: Path) -> None:
    definition = sinks.parquet(tmp_path, roll=3)
    store, begin = opened(definition, 5)
    zombie, _ = opened(definition, 2)
    with pytest.raises(SinkFenced):
        zombie.commit(life(2), 1, rows(1), 0)
    assert run_on(store, 5, begin) == 20


@pytest.mark.parametrize("step", ["write", "publish"])
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("is_after", [False, True])
def test_one_that_is_given_up_at_any_step_of_a_commit_adds_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int, is_after: bool
) -> None:
    """The zombie stops at a step; the next incarnation opens and runs to the end; then the zombie goes on."""
    definition, calls = sinks.parquet(tmp_path, roll=3), 0
    zombie, _ = opened(definition, 0)
    original = getattr(file_store, step)

    def overtaken(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls != call:
            return original(*arguments)  # type: ignore[no-any-return]
        if is_after:
            original(*arguments)
        monkeypatch.setattr(file_store, step, original)
        store, begin = opened(definition, 1)
        run_on(store, 1, begin)
        return None if is_after else original(*arguments)

    monkeypatch.setattr(file_store, step, overtaken)
    zombie.commit(life(0), 1, rows(1), 0)
    zombie.commit(life(0), 2, rows(2), 0)
    try:
        zombie.commit(life(0), 3, rows(3), 0)
    except SinkFenced:
        assert not (step == "publish" and call == 2 and is_after)
    assert sinks.read(tmp_path).to_pylist() == expected(20)


def test_a_zombie_that_writes_all_the_time_is_fenced_all_the_same(tmp_path: Path) -> None:
    """Ten incarnations, each still writing when the next one opens."""
    definition = sinks.parquet(tmp_path, roll=1)
    fenced: list[int] = []

    def live(number: int, store: SinkStore, begin: int, started: threading.Event) -> None:
        epoch = begin
        try:
            while True:
                epoch += 1
                store.commit(life(number), epoch, rows(epoch), 0)
                started.set()
        except SinkFenced:
            fenced.append(number)

    threads = []
    for number in range(10):
        store, begin = opened(definition, number)
        started = threading.Event()
        threads.append(threading.Thread(target=live, args=(number, store, begin, started)))
        threads[-1].start()
        assert started.wait(10)
    last, begin = opened(definition, 10)
    for thread in threads:
        thread.join(10)
    assert sorted(fenced) == list(range(10))
    last.commit(life(10), begin + 1, rows(begin + 1), MAX_WATERMARK)
    assert sinks.read(tmp_path).to_pylist() == expected(begin + 1)


def test_of_incarnations_that_open_at_the_same_time_the_latest_remains(tmp_path: Path) -> None:
    for attempt in range(20):
        home, barrier = tmp_path / str(attempt), threading.Barrier(4)
        entered: dict[int, Path | None] = {}

        def enter(number: int, home: Path = home, barrier: threading.Barrier = barrier, entered: Any = entered) -> None:
            barrier.wait()
            entered[number] = fencing.enter(home, number)

        threads = [threading.Thread(target=enter, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert fencing.incarnations(home) == {3}
        assert entered[3] == fencing.own_directory(home, 3)


def test_a_directory_that_is_filled_while_it_is_removed_is_emptied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    rmdir, refilled = Path.rmdir, iter([True, True, False])

    def refill(self: Path) -> None:
        if self == doomed and next(refilled):
            (doomed / "late").touch()
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", refill)
    fencing.remove(doomed)
    assert not doomed.exists()


def test_a_store_that_was_closed_takes_nothing(tmp_path: Path) -> None:
    store, _ = opened(sinks.parquet(tmp_path), 0)
    store.commit(life(0), 1, rows(1), 0)
    store.close()
    with pytest.raises(SinkFenced):
        store.commit(life(0), 2, rows(2), MAX_WATERMARK)
    assert sinks.read(tmp_path).num_rows == 0


# -- what is there already --------------------------------------------------------------------------------------------


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A directory with the output of an earlier run."""
    run_on(opened(sinks.parquet(tmp_path / "out"), 0)[0], 0, 0, last=5)
    return tmp_path / "out"


def test_the_output_of_an_earlier_run_is_left_alone(earlier: Path) -> None:
    with pytest.raises(UserError, match=rf"sink 'out': {earlier} has the output of an earlier run; .*overwrite=True"):
        sinks.parquet(earlier).check("out", SCHEMA)
    assert sinks.read(earlier).to_pylist() == expected(5)


def test_checking_removes_nothing(earlier: Path) -> None:
    sinks.parquet(earlier, overwrite=True).check("out", SCHEMA)
    assert sinks.read(earlier).to_pylist() == expected(5)


def test_the_output_of_an_earlier_run_can_be_overwritten(earlier: Path) -> None:
    definition = sinks.parquet(earlier, overwrite=True)
    definition.check("out", SCHEMA)
    stores = [opened(definition, 0, index)[0] for index in range(2)]
    for index, store in enumerate(stores):
        run_on(store, 0, 0, last=2, index=index)
    assert sinks.read(earlier).num_rows == 6
    assert len(OutputLayout(earlier).runs()) == 1


def test_an_earlier_run_that_still_writes_is_fenced_when_it_is_overwritten(tmp_path: Path) -> None:
    old, _ = opened(sinks.parquet(tmp_path, roll=1), 0)
    new, _ = opened(sinks.parquet(tmp_path, roll=1, overwrite=True), 0)
    with pytest.raises(SinkFenced):
        old.commit(life(0), 1, rows(1), 0)
    assert run_on(new, 0, 0, last=2) == 2


def test_rows_can_be_appended_to_an_earlier_run(earlier: Path) -> None:
    definition = sinks.parquet(earlier, append=True)
    definition.check("out", SCHEMA)
    run_on(opened(definition, 0)[0], 0, 0, last=2)
    assert sinks.read(earlier).to_pylist() == expected(5) + expected(2)


def test_rows_of_other_columns_are_not_appended(earlier: Path) -> None:
    with pytest.raises(UserError, match=r"sink 'out': .* has the columns \[epoch: int64, sink: int64\]"):
        sinks.parquet(earlier, append=True).check("out", pa.schema([("epoch", pa.int64())]))


def test_a_query_that_runs_again_is_another_run(tmp_path: Path) -> None:
    definition = sinks.parquet(tmp_path, append=True)
    for _ in range(2):
        definition.check("out", SCHEMA)
        run_on(opened(definition, 0)[0], 0, 0, last=2)
    assert sinks.read(tmp_path).to_pylist() == expected(2) * 2


@pytest.mark.parametrize("options", [{}, {"overwrite": True}])
def test_files_that_no_sink_wrote_are_left_alone(tmp_path: Path, options: dict[str, bool]) -> None:
    (tmp_path / "data.parquet").touch()
    with pytest.raises(UserError, match=r"files that no sink wrote, such as data\.parquet"):
        sinks.parquet(tmp_path, **options).check("out", SCHEMA)


def test_two_sinks_do_not_write_to_one_directory(tmp_path: Path) -> None:
    first, second = sinks.parquet(tmp_path), sinks.parquet(tmp_path)
    for definition in (first, second):
        definition.check("out", SCHEMA)
    opened(first, 0)
    with pytest.raises(UserError, match="sink 'out': another run or another sink writes to"):
        opened(second, 0)


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(UserError, match="is a file; name a directory"):
        sinks.csv(tmp_path / "out").check("out", SCHEMA)


@pytest.mark.parametrize("options", [{"roll": 0}, {"overwrite": True, "append": True}])
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        sinks.parquet(tmp_path, **options)


def test_a_directory_that_somebody_removes_is_a_fault_of_the_surroundings(tmp_path: Path) -> None:
    store, _ = opened(sinks.parquet(tmp_path / "out", roll=1), 0)
    fencing.remove(tmp_path / "out")
    with pytest.raises(EnvironmentFault, match="sink 'out' cannot write to"):
        store.commit(life(0), 1, rows(1), 0)


def test_a_full_disk_is_a_fault_of_the_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened(sinks.parquet(tmp_path, roll=1), 0)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(EnvironmentFault, match="No space left"):
        store.commit(life(0), 1, rows(1), 0)
    assert OutputLayout(tmp_path).parts() == []


def test_an_epoch_is_committed_once(tmp_path: Path) -> None:
    store, _ = opened(sinks.parquet(tmp_path), 0)
    store.commit(life(0), 3, rows(3), 0)
    with pytest.raises(InternalError, match="epoch 3 after 3"):
        store.commit(life(0), 3, rows(3), 0)


def test_an_incarnation_opens_once(tmp_path: Path) -> None:
    definition = sinks.parquet(tmp_path)
    opened(definition, 0)
    with pytest.raises(InternalError, match="opens its store once"):
        opened(definition, 0)


def test_a_directory_without_output_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no output of a sink"):
        sinks.read(tmp_path)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    run_on(opened(sinks.parquet(tmp_path), 0)[0], 0, 0)
    part = tmp_path / OutputLayout(tmp_path).parts()[0].name
    os.truncate(part, 20)
    with pytest.raises(EnvironmentFault, match=rf"{part} is damaged"):
        sinks.read(tmp_path)
