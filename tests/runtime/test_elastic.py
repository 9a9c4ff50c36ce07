"""Queries that grow, shrink and move while they run, by hand and by policy, with VMs that fail. Real processes."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from policies.backup import BackupSection, BackupSettings, BackupStrategy
from policies.balance.settings import BalanceSettings
from policies.observation import History
from policies.scaling.decision import Decision
from policies.scaling.settings import Bounds, DetectorSettings, Mechanism, ScalingSettings
from primitives.errors import UserError
from primitives.event import Event
from primitives.graph import InstanceId
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import (
    KEYS,
    RATE,
    SCHEMA,
    committed,
    counting,
    doubled,
    expected,
    found,
    idle,
    numbers,
    start,
)
from tests.runtime.counting import wait_until as until
from vmpool.provider import Machine, ProviderError
from vmpool.settings import Metadata, PoolSettings, VMSettings
from vmpool.spark import SparkSlots

#: Rows per second that one small VM cannot take in `burdened`, and two can.
HEAVY_RATE = 10_000
SMALL = VMSettings(cpu=0.1, credit=0.5)


def scaled(run: Run, kind: str = "scaled out", times: int = 1) -> None:
    until(lambda: len(run.events.of(kind)) >= times)


def instances(run: Run, operator: str) -> int:
    return sum(name.partition("[")[0] == operator for name in run.placement)


def end(run: Run) -> None:
    """Ends the input; the result must be exact."""
    run.finish()
    assert run.wait(120)
    assert found(run) == expected(run)


# -- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operator", ["counter", *(pytest.param(o, marks=pytest.mark.acceptance) for o in ("numbers", "map", "out"))]
)
def test_any_operator_can_be_scaled_out_and_in_again(host: Host, operator: str) -> None:
    with start(host, counting(partitions=4), rate=seep.Rate(RATE), spare=2) as run:
        committed(run, 20)
        run.scale(operator, 3)
        scaled(run)
        assert instances(run, operator) == 3
        committed(run, 20)
        run.scale(operator, 1)
        scaled(run, "scaled in")
        until(lambda: instances(run, operator) == 1)
        end(run)


def test_several_operators_scale_at_once(host: Host) -> None:
    with start(host, counting(partitions=2), rate=seep.Rate(RATE), spare=3) as run:
        committed(run, 20)
        run.scale("map", 2)
        run.scale("counter", 2)
        scaled(run, times=2)
        end(run)


def test_an_overloaded_instance_is_split_from_its_backup(host: Host) -> None:
    scaling = ScalingSettings(mechanism=Mechanism.BACKUP)
    with start(host, counting(), rate=seep.Rate(RATE), spare=3, scaling=scaling) as run:
        committed(run, 30)
        run.scale("counter", 2)
        scaled(run)
        assert run.events.of("split effective")
        end(run)


@pytest.mark.parametrize("strategy", [BackupStrategy.STORAGE, BackupStrategy.NONE])
def test_slots_are_handed_over_where_no_node_has_a_backup_to_split(
    host: Host, tmp_path: Path, strategy: BackupStrategy
) -> None:
    options = {
        "scaling": ScalingSettings(mechanism=Mechanism.BACKUP),
        "backup": BackupSection(default=BackupSettings(strategy=strategy)),
        "storage": StorageSettings(location=str(tmp_path)),
    }
    with start(host, counting(), rate=seep.Rate(RATE), spare=3, **options) as run:
        committed(run, 30)
        run.scale("counter", 2)
        scaled(run)
        assert instances(run, "counter") == 2
        assert [event.operator for event in run.events.of("split not possible")] == ["counter"]
        assert not run.events.of("split begun")
        end(run)


def test_a_split_whose_holder_fails_before_it_is_restored_is_made_again(host: Host) -> None:
    scaling = ScalingSettings(mechanism=Mechanism.BACKUP)
    with start(host, counting(), rate=seep.Rate(RATE), spare=3, scaling=scaling) as run:
        committed(run, 30)
        backup = run.manager_process.backup_of(InstanceId("counter", 0))
        assert backup is not None
        holder = backup.holders[0]
        once(run, "split begun", lambda _: run.kill(holder))
        run.scale("counter", 2)
        scaled(run)
        assert run.events.of("split aborted", "scaling aborted")
        end(run)


def test_an_instance_that_does_not_exist_or_has_too_few_slots_is_refused_by_name(host: Host) -> None:
    with start(host, counting(rows=100_000)) as run:
        with pytest.raises(UserError, match=r"there is no operator 'countr'; there are numbers, map, counter, out"):
            run.scale("countr", 2)
        with pytest.raises(UserError, match=r"operator 'numbers' cannot have 2 instances; choose 1 to 1"):
            run.scale("numbers", 2)
        with pytest.raises(UserError, match=r"there is no live node 'n77'"):
            run.drain("n77")
        assert run.wait(120)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scaling": ScalingSettings(operators={"countr": Bounds(max=3)})}, "scaling.operators names countr; the"),
        (
            {
                "scaling": ScalingSettings(
                    policy="schedule", settings={"at": [{"time": "1h", "operators": {"mapp": 2, "out": 1}}]}
                )
            },
            "scaling.settings.at names mapp; the",
        ),
        ({"backup": BackupSection(operators={"map": BackupSettings()})}, "backup.operators names map; operators with"),
        ({"balance": BalanceSettings(operators=("countr",))}, "balance.operators: 'countr' cannot be balanced"),
        ({"parallelism": {"countr": 2}}, "parallelism is given for 'countr'"),
        ({"rate": {"numbrs": seep.Rate(1)}}, "a rate is given for 'numbrs'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_name_an_operator_that_is_not_there_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(problem)}") as refused:
        seep.launch(counting(), **options)  # before it would start Spark
    assert "counter" in str(refused.value) or "numbers" in str(refused.value)


def test_a_compiled_query_does_not_ignore_parallelism_or_rate() -> None:
    for options in ({"parallelism": {"counter": 2}}, {"rate": seep.Rate(1)}):
        with pytest.raises(UserError, match=r"give its parallelism and rate to query\.compile"):
            seep.launch(counting().compile(), **options)


# -- by policy --------------------------------------------------------------------------------------------------------


def burdened() -> seep.Query:
    """The same with a map that takes its time in Python for each row, as user code may."""
    query = seep.Query("burdened")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=2))
    mapped = source.map("map", _at_leisure)
    totals = mapped.key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"), emit="end")
    totals.sink("out", seep.sinks.collect())
    return query


def _at_leisure(batch: pa.RecordBatch) -> dict[str, Any]:
    for n in batch["n"].to_pylist():
        sum(range(int(n) % 7 + 700))
    return doubled(batch)


def test_a_bottleneck_on_a_small_vm_is_found_and_scaled_out(host: Host) -> None:
    scaling = ScalingSettings(
        policy="cpu-threshold",
        detector=DetectorSettings(report=0.5),
        cooldown=1.0,
        operators={"map": Bounds(max=3)},
        default=Bounds(scale=False),
    )
    with start(host, burdened(), rate=seep.Rate(HEAVY_RATE), epoch=0.1, spare=2, vm=SMALL, scaling=scaling) as run:
        scaled(run)
        (bottleneck, *_) = [each for each in run.events.of("bottleneck") if each.operator == "map"]
        assert "cpu: map[0]" in bottleneck.detail
        assert instances(run, "map") >= 2
        committed(run, 5)
        report = run.report()
        end(run)
    assert report["summary"]["scalings"][0]["before"] == 1
    assert report["summary"]["scalings"][0]["latency_peak"] > 0
    assert report["summary"]["vm_seconds"] > 0


def test_instances_with_little_to_do_are_merged(host: Host) -> None:
    scaling = ScalingSettings(
        policy="cpu-threshold",
        detector=DetectorSettings(report=0.3),
        cooldown=0.1,
        operators={"counter": Bounds(min=1)},
        default=Bounds(scale=False),
    )
    with start(host, counting(), rate=seep.Rate(2_000), epoch=0.1, parallelism={"counter": 2}, scaling=scaling) as run:
        scaled(run, "scaled in")
        until(lambda: instances(run, "counter") == 1)
        end(run)


class Doubling:
    """A policy of the user's: two of everything that keeps state."""

    def __init__(self, operator: str) -> None:
        self._operator = operator

    def decide(self, history: History) -> list[Decision]:
        return [Decision(self._operator, 2, f"at {history.now:.0f} s, always")]


class Failing(Doubling):
    def decide(self, history: History) -> list[Decision]:
        raise ZeroDivisionError(f"nothing to divide at {len(history.observations)}")


def by_policy(name: str) -> ScalingSettings:
    return ScalingSettings(
        policy=f"{__name__}:{name}", settings={"operator": "counter"}, detector=DetectorSettings(report=0.2)
    )


def test_a_decision_for_which_no_vm_comes_is_given_up_and_the_next_one_is_taken(host: Host) -> None:
    pool = PoolSettings(size=0, reserve=0, max_vms=4)
    with start(host, counting(), rate=seep.Rate(RATE), pool=pool, scaling=ScalingSettings(timeout=1.0)) as run:
        committed(run, 20)
        for times in (1, 2):
            run.scale("counter", 2)
            scaled(run, "scaling given up", times)
        assert run.events.of("scaling given up")[0].detail == "to 2: for 1 s it waited for 1 VM"
        assert instances(run, "counter") == 1
        end(run)


def test_a_policy_of_the_users_own_decides(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=2, scaling=by_policy("Doubling")) as run:
        scaled(run)
        assert instances(run, "counter") == 2
        end(run)


def test_a_policy_that_fails_is_told_once_and_the_query_goes_on(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), scaling=by_policy("Failing")) as run:
        until(lambda: bool(run.events.of("scaling failed")))
        committed(run, 30)
        assert "policy Failing fails" in run.events.of("scaling failed")[0].detail
        end(run)


# -- looking inside ---------------------------------------------------------------------------------------------------


def test_the_state_of_a_running_operator_can_be_read_as_it_was_after_one_epoch(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), parallelism={"counter": 3}, spare=2) as run:
        committed(run, 20)
        view = run.state("counter")
        (count,) = [name for name in view.to_arrow().column_names if name.startswith("count(")]
        seen = {row["key"]: row[count] for row in view.to_arrow().to_pylist()}
        total = sum(seen.values())
        counts = Counter(n * 7919 % KEYS for n in range(total))
        assert seen == dict(counts), "all of it is after the same epoch: the first rows, and no others"
        if total:
            key = next(iter(seen))
            assert [row[count] for row in view.get(key)] == [seen[key]]
        with pytest.raises(UserError, match="'map' keeps no state; those that do: counter"):
            run.state("map")


# -- VMs --------------------------------------------------------------------------------------------------------------


def once(run: Run, kind: str, act: Any) -> None:
    """Does something when an event first happens, on another thread."""
    heard = threading.Event()

    def hear(event: Event) -> None:
        if event.kind == kind and not heard.is_set():
            heard.set()
            threading.Thread(target=act, args=(event,)).start()

    run.events.listen(hear)


def test_a_vm_that_dies_while_it_is_idle_is_replaced(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as run:
        idle(run)
        (spare,) = set(run.nodes) - set(run.placement.values())
        run.kill(spare)
        until(lambda: bool(run.events.of("vm lost")) and spare not in run.nodes)  # pool and manager learn it apart
        idle(run)
        end(run)


def test_a_vm_that_dies_when_it_is_handed_out_is_made_good(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=3) as run:
        committed(run, 30)
        once(run, "move announced", lambda _: run.kill("counter[1]"))
        run.scale("counter", 2)
        scaled(run)
        until(lambda: bool(run.events.of("recovered")))
        assert instances(run, "counter") == 2
        end(run)


def test_an_exhausted_pool_is_told_and_the_query_goes_on(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), pool=PoolSettings(size=0, reserve=0, max_vms=4)) as run:
        committed(run, 20)
        run.scale("counter", 2)
        until(lambda: bool(run.events.of("pool exhausted")))
        assert "max_vms" in run.events.of("pool exhausted")[0].detail
        committed(run, 30)
        assert instances(run, "counter") == 1
        end(run)


class Refusing(SparkSlots):
    """A provider that refuses every second order."""

    def __init__(self, settings: dict[str, Any], **_: Any) -> None:
        self._refusals = settings["refusals"]

    def start(self, name: str) -> Machine:
        if self._refusals > 0:
            self._refusals -= 1
            raise ProviderError("out of machines; ask again later")
        return super().start(name)


def test_a_provider_that_fails_is_asked_again(host: Host) -> None:
    pool = PoolSettings(provider=f"{__name__}:Refusing", settings={"refusals": 2}, size=1, retry=0.1)
    with start(host, counting(), rate=seep.Rate(RATE), pool=pool) as run:
        assert "out of machines" in run.events.of("provider failed")[0].detail
        run.scale("counter", 2)
        scaled(run)
        end(run)


def test_a_slow_provider_delays_a_scale_out_and_nothing_else(host: Host) -> None:
    pool = PoolSettings(size=0, reserve=0, provisioning_delay=1.5)
    with start(host, counting(), rate=seep.Rate(RATE), pool=pool) as run:
        committed(run, 20)
        run.scale("counter", 2)
        until(lambda: bool(run.events.of("waiting for VMs")))
        committed(run, 10)
        scaled(run)
        (out,) = run.events.of("scaled out")
        assert out.parts["waited"] > 1.0
        end(run)


def test_a_drained_node_hosts_nothing_keeps_nothing_and_is_given_back(host: Host) -> None:
    with start(host, counting(partitions=2), rate=seep.Rate(RATE), spare=2) as run:
        committed(run, 30)
        for operator in ("counter", "numbers"):
            node = next(node for name, node in run.placement.items() if name.startswith(operator))
            idle(run)
            run.drain(node)
            until(lambda node=node: any(each.node == node for each in run.events.of("drained")))  # type: ignore[misc]
            until(lambda node=node: node not in run.nodes)  # type: ignore[misc]
        assert not run.events.of("recovered")
        end(run)


@contextmanager
def metadata(seconds: float) -> Iterator[tuple[str, threading.Semaphore]]:
    """The metadata service of a cloud: with each release, it tells one that asks that its VM will be taken away."""
    notices = threading.Semaphore(0)

    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(b"token")

        def do_GET(self) -> None:
            if self.path.endswith("/spot/instance-action") and notices.acquire(blocking=False):
                at = datetime.now(UTC) + timedelta(seconds=seconds)
                self._answer(json.dumps({"action": "terminate", "time": at.isoformat()}).encode())
            else:
                self.send_error(404)

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", notices
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_notice_of_a_spot_vm_becomes_a_planned_handover(host: Host) -> None:
    with metadata(120.0) as (url, notices):
        vm = VMSettings(notices=Metadata.EC2, notices_url=url, notices_every=0.3)
        with start(host, counting(), rate=seep.Rate(RATE), spare=2, vm=vm) as run:
            idle(run, 2)
            notices.release()
            until(lambda: bool(run.events.of("drained")))
            (notice,) = run.events.of("notice")
            until(lambda: notice.node not in run.nodes)
            assert not run.events.of("recovered")
            committed(run, 10)
            end(run)
