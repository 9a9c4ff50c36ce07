"""The provider `gce` of the pool, by Google's own client at a loopback API, and the notices of spot VMs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.settings import checked
from primitives.errors import UserError
from seep.deploy.gcp.cluster import GcpCluster, open_cluster
from seep.deploy.gcp.settings import GcpSettings
from tests.deploy.gce_server import GceServer
from vmpool.gcp.names import LONGEST, named, plain
from vmpool.gcp.provider import GceProvider, from_settings
from vmpool.interruption import NOTICE, GceNotices
from vmpool.provider import Machine, ProviderError

MASTER = "spark://seep-demo-master:7077"


@pytest.fixture
def server() -> Iterator[GceServer]:
    with GceServer() as server:
        yield server


@pytest.fixture
def cluster(server: GceServer, tmp_path: Path) -> GcpCluster:
    """A cluster that is up, with no workers but those to come."""
    pins = tmp_path / "pins.txt"
    pins.write_text("numpy==2.0.0\n", encoding="utf-8")
    machines = {"workers": 0, "nodes_per_worker": 2}
    content = access(server) | {"name": "demo", "environment": str(pins), "machines": machines, "tags": {"team": "s"}}
    subject = open_cluster(checked(GcpSettings, content, "gcp"))
    subject.up()
    return subject


def access(server: GceServer) -> dict[str, Any]:
    return {"project": server.project, "zone": server.zone, "endpoint": server.url, "patience": "50ms"}


def provider(server: GceServer, run: str = "run-1", nodes_per_vm: int = 2, **more: Any) -> GceProvider:
    settings = access(server) | {"cluster": "demo", "poll": "1ms"} | more
    return from_settings(settings, run=run, master=MASTER, nodes_per_vm=nodes_per_vm)


@pytest.mark.usefixtures("cluster")
def test_a_vm_comes_from_the_workers_template_bears_the_runs_labels_and_has_an_address(server: GceServer) -> None:
    machine = provider(server).start("vm-1")
    found = server.things["instances"]["seep-demo-pool-run-1-vm-1"]
    assert machine == Machine("vm-1", "seep-demo-pool-run-1-vm-1", found["networkInterfaces"][0]["networkIP"])
    expected = {"seep-cluster": "demo", "seep-role": "worker", "seep-run": "run-1", "seep-vm": "vm-1", "team": "s"}
    assert found["labels"].items() >= expected.items()


@pytest.mark.usefixtures("cluster")
def test_start_returns_only_when_the_worker_has_joined(server: GceServer) -> None:
    server.looks = 5
    provider(server).start("vm-1")
    assert sum(each.endswith("getGuestAttributes") for each in server.requests) == 6


@pytest.mark.usefixtures("cluster")
def test_the_same_name_again_gives_the_same_vm(server: GceServer) -> None:
    subject = provider(server)
    assert subject.start("vm-1") == subject.start("vm-1")
    assert len(server.things["instances"]) == 2


@pytest.mark.usefixtures("cluster")
def test_a_vm_that_has_ended_is_made_anew_under_its_name(server: GceServer) -> None:
    subject = provider(server)
    first = subject.start("vm-1")
    server.things["instances"][first.id]["status"] = "TERMINATED"
    subject.start("vm-1")
    assert server.things["instances"][first.id]["status"] == "RUNNING"


@pytest.mark.usefixtures("cluster")
def test_stop_ends_the_vm_without_waiting_and_one_that_is_gone_is_no_error(server: GceServer) -> None:
    subject = provider(server)
    machine = subject.start("vm-1")
    subject.stop(machine)
    server.settle()
    assert machine.id not in server.things["instances"]
    subject.stop(machine)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("status", ["STOPPING", "TERMINATED", "SUSPENDED", None])
def test_a_vm_that_ends_without_having_been_stopped_is_lost(server: GceServer, status: str | None) -> None:
    subject = provider(server)
    machines = [subject.start(f"vm-{number}") for number in range(4)]
    assert subject.lost(machines) == set()
    if status is None:
        del server.things["instances"][machines[2].id]
    else:
        server.things["instances"][machines[2].id]["status"] = status
    assert subject.lost(machines) == {"vm-2"}


@pytest.mark.usefixtures("cluster")
def test_close_removes_what_the_run_started_and_nothing_of_others(server: GceServer) -> None:
    subject, other = provider(server), provider(server, run="run-2")
    subject.start("vm-1")
    subject.start("vm-2")
    theirs = other.start("vm-1")
    subject.close()
    server.settle()
    assert set(server.things["instances"]) == {"seep-demo-master", theirs.id}


def test_down_of_the_cluster_takes_the_pools_vms_with_it(server: GceServer, cluster: GcpCluster) -> None:
    provider(server).start("vm-1")
    assert cluster.status()["instance seep-demo-pool-run-1-vm-1"]
    cluster.down()
    assert server.names() == set()


@pytest.mark.usefixtures("cluster")
def test_a_start_that_is_not_needed_any_more_ends_with_close_and_leaves_nothing(server: GceServer) -> None:
    server.state = None
    subject = provider(server, poll="10s")
    failures: list[ProviderError] = []

    def start() -> None:
        with pytest.raises(ProviderError) as caught:
            subject.start("vm-1")
        failures.append(caught.value)

    thread = threading.Thread(target=start)
    asked = threading.Event()
    look = server.answer

    def watched(method: str, target: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return look(method, target, body)
        finally:
            if "getGuestAttributes" in target:
                asked.set()

    server.answer = watched  # type: ignore[method-assign]
    thread.start()
    assert asked.wait(10)
    subject.close()
    thread.join(10)
    assert "not needed any more" in str(failures[0])
    assert set(server.things["instances"]) == {"seep-demo-master"}


@pytest.mark.usefixtures("cluster")
def test_a_start_up_script_that_failed_is_told_and_its_vm_is_removed(server: GceServer) -> None:
    server.state = "failed: python -m pip install (exit code 1)"
    with pytest.raises(ProviderError, match=r"pip install \(exit code 1\); start one with `seep deploy gcp scale`"):
        provider(server).start("vm-1")
    assert set(server.things["instances"]) == {"seep-demo-master"}


@pytest.mark.usefixtures("cluster")
def test_a_vm_that_never_joins_is_given_up_and_removed(server: GceServer) -> None:
    server.state = None
    with pytest.raises(ProviderError, match=r"did not join within 0\.02 s") as caught:
        provider(server, ready="20ms").start("vm-1")
    assert caught.value.again
    assert set(server.things["instances"]) == {"seep-demo-master"}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("code", "again"), [("QUOTA_EXCEEDED", False), ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", True)]
)
def test_another_try_is_worth_it_if_capacity_lacks_and_not_if_quota_does(
    server: GceServer, code: str, again: bool
) -> None:
    server.fail("POST .*/instances", code, "There is not enough of it")
    with pytest.raises(ProviderError, match="There is not enough of it") as caught:
        provider(server).start("vm-1")
    assert caught.value.again is again


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("call", ["start", "stop", "lost", "close"])
def test_a_silent_api_is_a_provider_error_that_may_pass(server: GceServer, call: str) -> None:
    subject, machine = provider(server), Machine("vm-1", "seep-demo-pool-run-1-vm-1", None)
    arguments: dict[str, list[Any]] = {"start": ["vm-1"], "stop": [machine], "lost": [[machine]], "close": []}
    server.silent_from = 0
    with pytest.raises(ProviderError, match="cannot reach Google Cloud") as caught:
        getattr(subject, call)(*arguments[call])
    assert caught.value.again


def test_without_a_cluster_there_is_nothing_to_start_from(server: GceServer) -> None:
    with pytest.raises(ProviderError, match="make it with `seep deploy gcp up`") as caught:
        provider(server).start("vm-1")
    assert not caught.value.again


@pytest.mark.usefixtures("cluster")
def test_workers_with_other_cores_than_nodes_are_refused(server: GceServer) -> None:
    with pytest.raises(ProviderError, match=r"have 2 cores and pool\.nodes_per_vm is 3"):
        provider(server, nodes_per_vm=3).start("vm-1")


@pytest.mark.usefixtures("cluster")
def test_a_vm_of_that_name_but_of_another_run_is_left_alone(server: GceServer) -> None:
    machine = provider(server).start("vm-1")
    server.things["instances"][machine.id]["labels"]["seep-run"] = "other"
    with pytest.raises(ProviderError, match="is not of run run-1"):
        provider(server).start("vm-1")
    assert machine.id in server.things["instances"]


def test_a_local_master_and_unknown_settings_are_refused() -> None:
    with pytest.raises(UserError, match=r"not local\[64\]"):
        from_settings({"project": "p-1"}, run="r", master="local[64]", nodes_per_vm=1)
    with pytest.raises(UserError, match=r"pool\.settings: projekt is unknown"):
        from_settings({"project": "p-1", "projekt": 1}, run="r", master=MASTER, nodes_per_vm=1)


# -- names --------------------------------------------------------------------------------


@given(st.text(max_size=100))
def test_every_text_becomes_a_name_that_google_takes(text: str) -> None:
    assert len(named("demo", text)) <= LONGEST
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", named("demo", text))


@given(st.lists(st.text(alphabet="aA-_ é1", max_size=80), unique=True))
def test_different_texts_become_different_names(texts: list[str]) -> None:
    assert len({plain(text) for text in texts}) == len(texts)


@given(st.text(max_size=100))
def test_what_is_a_plain_name_stays_as_it_is(text: str) -> None:
    assert plain(plain(text)) == plain(text)


# -- notices --------------------------------------------------------------------------------


class Metadata(HTTPServer):
    """The metadata server of a VM: what it says, and how it was asked."""

    said = "FALSE"
    status = 200
    asked: tuple[str, str | None] = ("", None)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Metadata)
        self.server.asked = (self.path, self.headers.get("Metadata-Flavor"))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.said.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Tests read `asked`."""


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def notices(server: Metadata) -> GceNotices:
    return GceNotices(f"http://127.0.0.1:{server.server_port}")


def test_a_vm_that_is_preempted_has_half_a_minute(metadata: Metadata) -> None:
    metadata.said = "TRUE"
    assert notices(metadata).poll() == NOTICE == 30.0
    assert metadata.asked == ("/computeMetadata/v1/instance/preempted", "Google")


@pytest.mark.parametrize(("said", "status"), [("FALSE", 200), ("", 404), ("TRUE", 500), ("anything", 200)])
def test_any_other_answer_is_no_notice(metadata: Metadata, said: str, status: int) -> None:
    metadata.said, metadata.status = said, status
    assert notices(metadata).poll() is None


def test_a_machine_without_a_metadata_server_has_no_notice() -> None:
    assert GceNotices("http://127.0.0.1:1").poll() is None
