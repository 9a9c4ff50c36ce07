"""State that outlives the run: drivers killed and stopped, runs that go on from storage. Real processes and files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from primitives.errors import EnvironmentFault, UserError
from seep.channels.process import children
from seep.inspection.listing import checkpoints
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import KEYS, committed, doubled, numbers, start, wait_until
from tests.runtime.durable_driver import PARTITIONS, ROWS, durable, options

ROOT = Path(__file__).parents[2]


def last_words(directory: Path) -> dict[int, tuple[int, int]]:
    """The highest count of each key with its sum, of all changes in the output; no change may be there twice."""
    rows = seep.sinks.read(directory / "out").to_pylist()
    changes = Counter((row["key"], row["n"]) for row in rows)
    assert max(changes.values()) == 1, "a change was written twice"
    return {row["key"]: (row["n"], row["total"]) for row in sorted(rows, key=lambda row: row["n"])}


def expected(rows: int = ROWS) -> dict[int, tuple[int, int]]:
    counts, totals = Counter[int](), Counter[int]()
    for partition in range(PARTITIONS):
        for n in range(rows):
            value = n + partition * 1_000_000
            counts[value * 7919 % KEYS] += 1
            totals[value * 7919 % KEYS] += value
    return {key: (counts[key], totals[key]) for key in counts}


@contextmanager
def run_of(host: Host, directory: Path, rows: int = ROWS, **more: Any) -> Iterator[Run]:
    with start(host, durable(directory / "out", rows), **(options(directory) | more)) as run:
        yield run


def persisted(run: Run, times: int = 1) -> None:
    wait_until(lambda: len(run.events.of("persisted", "savepoint")) >= times)


# -- the driver -------------------------------------------------------------------------------------------------------


def test_a_killed_driver_is_followed_by_a_run_that_goes_on_exactly(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.durable_driver", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    for line in first.stdout:
        if line == "checkpoint 2\n":
            break
    left = children([first.pid])
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    second = subprocess.run(
        [
            *(sys.executable, "-m", "tests.runtime.durable_driver", str(tmp_path)),
            '{"restore": "latest", "rate": null, "parallelism": {"counter": 3, "numbers": 2, "map": 2}}',
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert second.returncode == 0, second.stderr
    assert second.stdout.endswith("done\n")
    assert last_words(tmp_path) == expected()
    assert left, "the first driver had a JVM"


@pytest.mark.acceptance
def test_the_command_line_restores_at_another_parallelism(tmp_path: Path) -> None:
    """The user's view of it: `seep run FILE:QUERY --storage … --restore latest`."""
    module = tmp_path / "job.py"
    module.write_text(
        "from pathlib import Path\nfrom tests.runtime.durable_driver import durable\n"
        f"query = durable(Path({str(tmp_path / 'out')!r}))\n"
    )
    common = ["--storage", str(tmp_path / "checkpoints"), "--checkpoint", "200ms", "--epoch", "20ms"]
    policy = tmp_path / "policy.yaml"
    policy.write_text("storage: {every: 1}\n")
    command = [
        sys.executable,
        "-c",
        "from seep.cli import main; main()",
        "run",
        f"{module}:query",
        "--policy",
        str(policy),
        *common,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    first = subprocess.run(
        [*command, "--seconds", "2", "--rate", "40k"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert first.returncode == 0, first.stdout + first.stderr
    again = subprocess.run(
        [*command, "--restore", "latest", "--parallelism", "counter=2"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert last_words(tmp_path) == expected()


# -- runs after one another -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parallelism",
    [
        {"counter": 2, "out": 3},
        pytest.param({}, marks=pytest.mark.acceptance),
        pytest.param({"numbers": 4, "map": 3}, marks=pytest.mark.acceptance),
        pytest.param({"counter": 4}, marks=pytest.mark.acceptance),
    ],
    ids=str,
)
def test_a_stopped_run_is_continued_at_any_parallelism(host: Host, tmp_path: Path, parallelism: dict[str, int]) -> None:
    with run_of(host, tmp_path, parallelism={"counter": 3, "out": 2}) as run:
        persisted(run, 3)
        committed(run, 10)
    with run_of(host, tmp_path, restore="latest", parallelism=parallelism, rate=None) as run:
        assert run.wait(120)
    assert last_words(tmp_path) == expected()


@pytest.mark.acceptance
def test_checkpoints_go_on_through_plans_and_recoveries(host: Host, tmp_path: Path) -> None:
    rows = ROWS
    with run_of(host, tmp_path, rows, spare=2) as run:
        persisted(run)
        run.scale("counter", 3)
        persisted(run, 2)
        run.kill("counter")
        persisted(run, 4)
    with run_of(host, tmp_path, rows, restore="latest") as run:
        committed(run, 10)
        run.kill("counter")
        assert run.wait(120)
    assert last_words(tmp_path) == expected(rows)


def test_what_a_run_wrote_that_ended_before_its_first_checkpoint_does_not_come_twice(
    host: Host, tmp_path: Path
) -> None:
    rows = 2 * ROWS
    with run_of(host, tmp_path, rows) as run:
        persisted(run, 2)
    with run_of(host, tmp_path, rows, restore="latest", checkpoint=None) as run:
        committed(run, 20)
        run.manager_process.fail(EnvironmentFault("as if it had died: then nothing is stored"))
    with run_of(host, tmp_path, rows, restore="latest", rate=None) as run:
        assert run.wait(120)
    assert last_words(tmp_path) == expected(rows)


def test_the_same_command_begins_goes_on_and_finds_nothing_to_do(host: Host, tmp_path: Path) -> None:
    with run_of(host, tmp_path, checkpoint=60.0) as run:
        committed(run, 20)
        assert not run.events.of("resumed")
    with run_of(host, tmp_path, rate=None) as run:
        [resumed] = run.events.of("resumed")
        assert resumed.numbers["epoch"] >= 20, "how far the run before had come is stored when it is stopped"
        assert run.wait(120)
    before = sorted((tmp_path / "out").glob("part-*"))
    with run_of(host, tmp_path) as run:
        assert run.wait(120)
        [finished] = run.events.of("finished")
        assert "nothing new to read" in finished.detail
    assert sorted((tmp_path / "out").glob("part-*")) == before
    assert last_words(tmp_path) == expected()


def test_a_run_that_fails_before_its_first_checkpoint_is_begun_again_from_its_beginning(
    host: Host, tmp_path: Path
) -> None:
    with run_of(host, tmp_path, checkpoint=None) as run:
        committed(run, 20)
        run.manager_process.fail(EnvironmentFault("as if it had died: then nothing is stored"))
    assert [found.epoch for found in checkpoints(str(tmp_path / "checkpoints"), "durable")] == [0]
    with run_of(host, tmp_path, rate=None) as run:
        assert run.wait(120)
    assert last_words(tmp_path) == expected()


def test_after_going_back_later_checkpoints_are_abandoned_and_the_next_run_follows_the_new_line(
    host: Host, tmp_path: Path
) -> None:
    location = str(tmp_path / "checkpoints")
    storage = StorageSettings(location=location, every=1, keep=20)
    with run_of(host, tmp_path, storage=storage) as run:
        committed(run, 20)
        number = run.savepoint()
        before = len(run.events.of("persisted"))
        wait_until(lambda: len(run.events.of("persisted")) >= before + 2)
    later = {found.id for found in checkpoints(location, "durable") if found.id > number}
    with run_of(host, tmp_path, storage=storage, restore=str(number), checkpoint=None) as run:
        committed(run, 1)
        run.manager_process.fail(EnvironmentFault("as if it had died: then nothing is stored"))
    newest = checkpoints(location, "durable")[0]
    assert newest.id > max(later)
    assert set(newest.abandoned) == later
    with run_of(host, tmp_path, storage=storage, rate=None) as run:
        [resumed] = run.events.of("resumed")
        assert resumed.numbers["id"] == newest.id
        assert run.wait(120)
    assert last_words(tmp_path) == expected()
    assert set(checkpoints(location, "durable")[0].abandoned) == later


def test_a_run_that_cannot_store_its_end_fails_and_the_next_one_goes_on_exactly(host: Host, tmp_path: Path) -> None:
    rows = ROWS // 10
    with run_of(host, tmp_path, rows, rate=None, checkpoint=None) as run:
        wait_until(lambda: run.rows_read > 0)
        blobs = tmp_path / "checkpoints" / "durable" / f"{2:012d}"
        blobs.parent.mkdir(exist_ok=True)
        blobs.write_text("where files of the next checkpoint were to be")
        with pytest.raises(EnvironmentFault, match="last checkpoint could not be stored"):
            run.wait(120)
    blobs.unlink()
    with run_of(host, tmp_path, rows) as run:
        assert run.wait(120)
    assert last_words(tmp_path) == expected(rows)


@pytest.mark.acceptance
@pytest.mark.timeout(1200)
def test_a_driver_that_is_killed_at_any_moment_goes_on_by_the_same_command(tmp_path: Path) -> None:
    rng = random.Random(7)
    command = [sys.executable, "-m", "tests.runtime.durable_driver", str(tmp_path)]
    for _ in range(15):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=ROOT, capture_output=True, timeout=rng.uniform(0.5, 8.0))  # then it is killed
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert last_words(tmp_path) == expected()


def test_a_savepoint_stays_and_can_be_begun_from_by_its_number(host: Host, tmp_path: Path) -> None:
    with run_of(host, tmp_path) as run:
        committed(run, 20)
        number = run.savepoint()
        persisted(run, 3)
    with run_of(host, tmp_path, restore=str(number), rate=None) as run:
        assert run.wait(120)
    assert last_words(tmp_path) == expected()


def test_savepoints_that_are_asked_for_while_checkpoints_are_written_are_checkpoints_of_their_own(
    host: Host, tmp_path: Path
) -> None:
    def ask() -> tuple[int, int]:
        committed = run.status().committed
        return committed, run.savepoint()

    with run_of(host, tmp_path, checkpoint=0.1) as run, ThreadPoolExecutor(4) as threads:
        committed(run, 20)
        answers = [each.result() for each in [threads.submit(ask) for _ in range(12)]]
        stored = {each.id: each for each in checkpoints(str(tmp_path / "checkpoints"), "durable")}
    for epoch, number in answers:
        assert stored[number].savepoint
        assert stored[number].epoch > epoch


def test_when_a_run_is_over_it_says_so_at_once_to_whoever_asks_for_its_state(host: Host, tmp_path: Path) -> None:
    with run_of(host, tmp_path, rows=100, rate=None) as run:
        assert run.wait(120)
        for ask in (run.savepoint, lambda: run.state("counter")):
            with pytest.raises(EnvironmentFault, match="the run is over"):
                ask()


STUCK, FREE = threading.Event(), threading.Event()


def hold(*_: Any) -> None:
    """A sink that does not get on until it may."""
    STUCK.set()
    FREE.wait(120)


def stuck() -> seep.Query:
    """Its sink takes nothing until it may."""
    STUCK.clear()
    FREE.clear()
    query = seep.Query("stuck")
    schema = pa.schema([("n", pa.int64())])
    source = query.source("numbers", seep.sources.generator(numbers, schema))
    source.map("map", doubled).key_by("key").aggregate("counter", n=seep.count()).sink("out", seep.sinks.callback(hold))
    return query


def test_a_checkpoint_that_does_not_get_complete_in_time_is_abandoned_and_the_next_one_succeeds(
    host: Host, tmp_path: Path
) -> None:
    storage = StorageSettings(location=str(tmp_path / "storage"), timeout=1.0)
    with start(host, stuck(), **(options(tmp_path) | {"storage": storage})) as run:
        assert STUCK.wait(120)
        try:
            why = r"abandoned: not complete within 1 s: the cut after epoch \d+ waits for (the state|the sinks)"
            with pytest.raises(EnvironmentFault, match=why):
                run.savepoint(timeout=120.0)
        finally:
            FREE.set()
        wait_until(lambda: bool(run.events.of("persisted")))


def test_a_savepoint_that_takes_too_long_says_what_it_waits_for(host: Host, tmp_path: Path) -> None:
    with start(host, stuck(), **options(tmp_path)) as run:
        assert STUCK.wait(120)
        try:
            for ask, of in ((run.savepoint, "savepoint"), (lambda timeout: run.state("counter", timeout), "state of")):
                with pytest.raises(EnvironmentFault, match=f"^no {of}.* within 2 s: .*the sinks to commit") as caught:
                    ask(timeout=2.0)
                assert "Allow more time with timeout=…" in str(caught.value)
        finally:
            FREE.set()


def test_a_run_that_was_taken_over_adds_no_checkpoint_and_ends(host: Host, tmp_path: Path) -> None:
    rows = 2 * ROWS
    with run_of(host, tmp_path, rows) as first:
        persisted(first)
        later = options(tmp_path) | {"restore": "latest", "rate": None}
        with seep.launch(durable(tmp_path / "out", rows), host.context, **later) as second:
            with pytest.raises(EnvironmentFault, match="taken over"):
                first.wait(120)
            assert second.wait(120)
    assert last_words(tmp_path) == expected(rows)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_without_storage_there_is_nothing_to_restore_or_save(host: Host, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="say where the checkpoints are"):
        seep.launch(durable(tmp_path / "out"), host.context, restore="latest")
    with start(host, durable(tmp_path / "out")) as run, pytest.raises(UserError, match="this run has no storage"):
        run.savepoint()


def test_storage_without_a_checkpoint_is_named(host: Host, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no complete checkpoint of query 'durable'"):
        seep.launch(durable(tmp_path / "out"), host.context, **options(tmp_path), restore="latest")


def test_a_run_does_not_go_on_with_other_files_than_those_that_its_positions_are_in(host: Host, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("n\n1\n2\n")

    def launched() -> Run:
        query = seep.Query("durable")
        rows = query.source("numbers", seep.sources.csv(tmp_path / "in"))
        rows.sink("out", seep.sinks.parquet(tmp_path / "out"))
        return seep.launch(query, host.context, **(options(tmp_path) | {"rate": None, "nodes": 1, "spare": 0}))

    with launched() as run:
        assert run.wait(120)
    (tmp_path / "in" / "b.csv").write_text("n\n3\n")
    with pytest.raises(UserError, match=r"source 'numbers' reads other data .*restore='none'"):
        launched()
    (tmp_path / "in" / "b.csv").unlink()
    with launched() as run:
        assert run.wait(120)
    assert sorted(seep.sinks.read(tmp_path / "out")["n"].to_pylist()) == [1, 2]


def changed(out: Path, **aggregates: Any) -> seep.Query:
    query = seep.Query("durable")
    schema = pa.schema([("n", pa.int64())])
    source = query.source("numbers", seep.sources.generator(lambda *_: {}, schema, partitions=PARTITIONS, rows=1))
    source.key_by("n").aggregate("other", **aggregates).sink("out", seep.sinks.parquet(out))
    return query


def test_state_that_the_query_has_no_more_is_dropped_only_if_that_is_allowed(host: Host, tmp_path: Path) -> None:
    with run_of(host, tmp_path) as run:
        persisted(run)
    query = changed(tmp_path / "elsewhere", rows=seep.count())
    given = options(tmp_path) | {"restore": "latest"}
    with pytest.raises(UserError, match="has state of counter, which the query does not have"):
        seep.launch(query, host.context, **given)


def test_a_damaged_checkpoint_is_named_and_never_half_loaded(host: Host, tmp_path: Path) -> None:
    with run_of(host, tmp_path) as run:
        persisted(run, 2)
    rng = random.Random(5)
    for blob in (tmp_path / "checkpoints").rglob("*counter*/*"):
        data = bytearray(blob.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        blob.write_bytes(data)
    with pytest.raises(EnvironmentFault, match="counter"), run_of(host, tmp_path, restore="latest") as run:
        run.wait(120)


def spoil(directory: Path, how: Callable[[bytes], bytes]) -> int:
    """Damages what the newest checkpoint has of the counter, by itself; its number."""
    newest = checkpoints(str(directory / "checkpoints"), "durable")[0]
    blobs = [blob for blob in newest.components["counter"].every_blob() if blob.epoch == newest.epoch]
    for blob in blobs:
        path = directory / "checkpoints" / blob.key
        path.write_bytes(how(path.read_bytes()))
    assert blobs
    return newest.id


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="a flipped bit"),
        pytest.param(lambda data: data[:-1], id="a cut", marks=pytest.mark.acceptance),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_where_that_is_allowed(
    host: Host, tmp_path: Path, how: Callable[[bytes], bytes]
) -> None:
    """What is cut is seen before the run begins; a bit that is flipped, only by the nodes, and then it begins anew."""
    with run_of(host, tmp_path) as run:
        persisted(run, 3)
    newest = spoil(tmp_path, how)
    with run_of(host, tmp_path, restore="latest", fall_back=True, rate=None) as run:
        assert run.wait(120)
        [resumed] = run.events.of("resumed")
    assert resumed.detail.endswith(f", not from {newest}")
    assert last_words(tmp_path) == expected()


def test_missing_bytes_are_named_before_anything_starts(host: Host, tmp_path: Path) -> None:
    with run_of(host, tmp_path) as run:
        persisted(run, 2)
    newest = spoil(tmp_path, lambda data: data[:-1])
    refusal = rf"checkpoint {newest} of durable is damaged: .*/counter/.* were written; .*--fall-back"
    with pytest.raises(EnvironmentFault, match=refusal):
        seep.launch(durable(tmp_path / "out"), host.context, **options(tmp_path), restore="latest")


# -- long chains ------------------------------------------------------------------------------------------------------


def test_long_chains_are_merged_in_storage_and_a_run_goes_on_from_there(host: Host, tmp_path: Path) -> None:
    storage = StorageSettings(location=str(tmp_path / "checkpoints"), every=1, chain=2, keep=2)
    with run_of(host, tmp_path, storage=storage, checkpoint=0.2) as run:
        wait_until(lambda: len(run.events.of("compacted")) >= 2)
        assert not run.events.of("compaction failed")
    with run_of(host, tmp_path, storage=storage, restore="latest", parallelism={"counter": 2}, rate=None) as run:
        run.wait(120)
    assert last_words(tmp_path) == expected()
