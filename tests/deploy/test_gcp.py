"""Clusters in Google Cloud: brought up, watched, resized and taken down, by Google's own client, at a loopback API."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from google.auth.exceptions import RefreshError

from formats.settings import checked
from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.deploy.gcp.cluster import GcpCluster, open_cluster
from seep.deploy.gcp.settings import GcpSettings
from tests.deploy.gce_server import GceServer
from vmpool.gcp.faults import in_words
from vmpool.gcp.names import RUN

GROUND = {"firewalls/seep-demo-members", "instanceTemplates/seep-demo-master", "instanceTemplates/seep-demo-worker"}
VMS = {"instances/seep-demo-master", "instances/seep-demo-worker-1", "instances/seep-demo-worker-2"}


@pytest.fixture
def server() -> Iterator[GceServer]:
    with GceServer() as server:
        yield server


@pytest.fixture
def settings(server: GceServer, tmp_path: Path) -> dict[str, Any]:
    """A section `gcp:` for that server."""
    pins = tmp_path / "pins.txt"
    pins.write_text("numpy==2.0.0\n", encoding="utf-8")
    access = {"project": server.project, "zone": server.zone, "endpoint": server.url, "patience": "50ms"}
    return {"name": "demo", "environment": str(pins), **access}


def cluster(settings: dict[str, Any], tell: Any = lambda _: None, **more: Any) -> GcpCluster:
    return open_cluster(checked(GcpSettings, settings | more, "gcp"), tell)


def workers(server: GceServer) -> set[str]:
    return {name.removeprefix("seep-demo-") for name in server.things["instances"]} - {"master"}


def test_a_plan_names_every_resource_and_makes_none(server: GceServer, settings: dict[str, Any]) -> None:
    assert cluster(settings).plan() == [
        "create firewall rule seep-demo-members",
        "create instance template seep-demo-master",
        "create instance template seep-demo-worker",
        "create instance seep-demo-master",
        "create instance seep-demo-worker-1",
        "create instance seep-demo-worker-2",
    ]
    assert server.changes() == []


def test_up_makes_all_of_it_and_a_second_up_changes_nothing(server: GceServer, settings: dict[str, Any]) -> None:
    told: list[str] = []
    assert cluster(settings, told.append).up() == 6
    assert server.names() == GROUND | VMS
    assert "create instance seep-demo-worker-2" in told
    assert "[3/3] create instance seep-demo-worker-2: done" in told
    before = len(server.changes())
    assert cluster(settings, told.append).up() == 0
    assert "keep instance seep-demo-worker-2" in told
    assert len(server.changes()) == before


def test_down_removes_exactly_what_up_made_and_what_the_pool_started(
    server: GceServer, settings: dict[str, Any]
) -> None:
    cluster(settings, name="other").up()
    others = server.names()
    cluster(settings).up()
    worker = server.things["instances"]["seep-demo-worker-1"]
    pooled = worker | {"name": "seep-demo-pool-r1-v1", "labels": worker["labels"] | {RUN: "r1"}}
    server.things["instances"]["seep-demo-pool-r1-v1"] = pooled
    assert cluster(settings).down() == 7
    assert server.names() == others
    assert cluster(settings).down() == 0


def test_status_tells_ids_what_is_missing_and_workers_that_others_started(
    server: GceServer, settings: dict[str, Any]
) -> None:
    subject = cluster(settings)
    assert set(subject.status().values()) == {None}
    assert subject.master_url() is None
    subject.up()
    subject.scale(3)
    del server.things["instances"]["seep-demo-worker-1"]
    status = subject.status()
    assert status["instance seep-demo-master"] == server.things["instances"]["seep-demo-master"]["id"]
    assert status["instance seep-demo-worker-1"] is None
    assert status["instance seep-demo-worker-3"] == server.things["instances"]["seep-demo-worker-3"]["id"]
    assert subject.master_url() == "spark://seep-demo-master:7077"


@pytest.mark.parametrize(("count", "left"), [(0, set()), (1, {"worker-1"}), (4, {f"worker-{n}" for n in (1, 2, 3, 4)})])
def test_scale_starts_or_ends_workers_from_the_highest_number(
    server: GceServer, settings: dict[str, Any], count: int, left: set[str]
) -> None:
    subject = cluster(settings)
    subject.up()
    assert subject.scale(count) == abs(count - 2)
    assert workers(server) == left
    assert subject.scale(count) == 0


def test_scale_fills_the_gap_that_a_lost_worker_left(server: GceServer, settings: dict[str, Any]) -> None:
    subject = cluster(settings)
    subject.up()
    del server.things["instances"]["seep-demo-worker-1"]
    assert subject.scale(2) == 1
    assert workers(server) == {"worker-1", "worker-2"}


def test_scale_leaves_the_workers_of_the_pool_alone(server: GceServer, settings: dict[str, Any]) -> None:
    subject = cluster(settings)
    subject.up()
    worker = server.things["instances"]["seep-demo-worker-1"]
    server.things["instances"]["seep-demo-pool-r1-v1"] = worker | {"name": "seep-demo-pool-r1-v1"}
    subject.scale(0)
    assert workers(server) == {"pool-r1-v1"}


def test_scale_refuses_more_than_most_and_a_cluster_that_is_not_up(settings: dict[str, Any]) -> None:
    subject = cluster(settings, machines={"workers": 1, "most": 3})
    with pytest.raises(UserError, match=r"4 workers are not between 0 and machines\.most, which is 3"):
        subject.scale(4)
    with pytest.raises(UserError, match="bring it up first"):
        subject.scale(2)


def test_up_starts_a_vm_that_has_stopped(server: GceServer, settings: dict[str, Any]) -> None:
    subject = cluster(settings)
    subject.up()
    server.things["instances"]["seep-demo-master"]["status"] = "TERMINATED"
    assert "start instance seep-demo-master" in subject.plan()
    assert subject.up() == 1
    assert server.things["instances"]["seep-demo-master"]["status"] == "RUNNING"


def test_up_replaces_a_template_that_other_settings_made_and_leaves_running_vms(
    server: GceServer, settings: dict[str, Any]
) -> None:
    cluster(settings).up()
    vms = {name: vm["id"] for name, vm in server.things["instances"].items()}
    larger = cluster(settings, machines={"worker": "e2-standard-8"})
    assert "replace instance template seep-demo-worker" in larger.plan()
    assert larger.up() == 1
    template = server.things["instanceTemplates"]["seep-demo-worker"]
    assert template["properties"]["machineType"] == "e2-standard-8"
    assert {name: vm["id"] for name, vm in server.things["instances"].items()} == vms


def test_the_admin_rule_follows_the_settings(server: GceServer, settings: dict[str, Any]) -> None:
    rules = server.things["firewalls"]
    cluster(settings, admin="198.51.100.7/32").up()
    assert rules["seep-demo-admin"]["sourceRanges"] == ["198.51.100.7/32"]
    assert cluster(settings, admin="198.51.100.8/32").up() == 1
    assert rules["seep-demo-admin"]["sourceRanges"] == ["198.51.100.8/32"]
    nobody = cluster(settings)
    assert "delete firewall rule seep-demo-admin" in nobody.plan()
    assert nobody.status()["firewall rule seep-demo-admin"]
    assert nobody.up() == 1
    assert "seep-demo-admin" not in rules


def test_a_rule_of_former_settings_is_removed_by_down(server: GceServer, settings: dict[str, Any]) -> None:
    cluster(settings, admin="198.51.100.7/32").up()
    cluster(settings).down()
    assert server.names() == set()


@pytest.mark.parametrize("command", ["up", "down", "plan", "status"])
def test_a_thing_of_that_name_without_the_label_is_never_touched(
    server: GceServer, settings: dict[str, Any], command: str
) -> None:
    server.things["firewalls"]["seep-demo-members"] = {"name": "seep-demo-members", "id": "1", "description": "mine"}
    with pytest.raises(UserError, match="firewall rule seep-demo-members that is not of cluster demo"):
        getattr(cluster(settings), command)()
    assert server.names() == {"firewalls/seep-demo-members"}
    assert server.changes() == []


# -- broken off, at every moment --------------------------------------------------------------------------------


def is_done(command: Callable[[], object]) -> bool:
    try:
        command()
    except EnvironmentFault:
        return False
    return True


@pytest.mark.parametrize("then", ["up", pytest.param("down", marks=pytest.mark.acceptance)])
def test_an_up_broken_off_at_any_request_is_resumed_or_taken_down(settings: dict[str, Any], then: str) -> None:
    for cut in itertools.count(1):
        with GceServer(silent_from=cut) as server:
            subject = cluster(settings | {"endpoint": server.url})
            if is_done(subject.up):
                break
            server.obey()
            server.settle()
            getattr(subject, then)()
            assert server.names() == (GROUND | VMS if then == "up" else set()), f"cut at request {cut}"
    assert cut > 15


def test_a_down_broken_off_at_any_request_is_completed(server: GceServer, settings: dict[str, Any]) -> None:
    cluster(settings).up()
    for cut in itertools.count(1):
        with GceServer(things=deepcopy(server.things), silent_from=cut) as broken:
            subject = cluster(settings | {"endpoint": broken.url})
            if is_done(subject.down):
                break
            broken.obey()
            broken.settle()
            subject.down()
            assert broken.names() == set(), f"cut at request {cut}"
    assert cut > 15


def test_ctrl_c_between_two_steps_leaves_what_can_be_resumed(server: GceServer, settings: dict[str, Any]) -> None:
    def interrupted(line: str) -> None:
        if line == "create instance seep-demo-worker-1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster(settings, interrupted).up()
    assert server.names() == GROUND | {"instances/seep-demo-master"}
    assert cluster(settings).up() == 2
    assert server.names() == GROUND | VMS


def test_a_lost_answer_does_not_make_a_second_vm(server: GceServer, settings: dict[str, Any]) -> None:
    server.lose("POST .*/instances")
    assert cluster(settings, patience="5s").up() == 6
    assert server.names() == GROUND | VMS


def test_one_vm_that_cannot_be_had_leaves_the_others_and_the_next_up_makes_it(
    server: GceServer, settings: dict[str, Any]
) -> None:
    server.fail("POST .*/instances", "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources", times=1)
    subject = cluster(settings)
    with pytest.raises(EnvironmentFault, match=r"create instance seep-demo-.*the zone has none left"):
        subject.up()
    assert len(server.things["instances"]) == 2
    assert subject.up() == 1
    assert server.names() == GROUND | VMS


# -- what goes wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind", "words"),
    [
        (403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 8.0", EnvironmentFault, "Limit: 8.0; ask for fewer"),
        (403, "forbidden", "Required 'compute.instances.create'", EnvironmentFault, "give the account that permission"),
        (403, "accessNotConfigured", "Compute Engine API is off", EnvironmentFault, "gcloud services enable"),
        (401, "authError", "Invalid Credentials", EnvironmentFault, "gcloud auth application-default login"),
        (400, "invalid", "Invalid value for field 'machineType'", UserError, "machineType'; correct the settings"),
        (404, "notFound", "The resource 'images/x' was not found", UserError, "not found; correct the settings"),
        (503, "backendError", "Try again", EnvironmentFault, "try later"),
        (418, "teapot", "I am a teapot", EnvironmentFault, "teapot; try later"),
    ],
)
def test_a_refusal_says_which_call_which_resource_and_what_to_do(
    server: GceServer, settings: dict[str, Any], status: int, reason: str, message: str, kind: type, words: str
) -> None:
    server.refuse("POST .*/instances", status, reason, message)
    with pytest.raises(SeepError, match="create instance seep-demo-") as caught:
        cluster(settings).up()
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)
    assert "project streams-1" in str(caught.value)


def test_quota_found_out_while_the_vm_is_made_is_an_error_too(server: GceServer, settings: dict[str, Any]) -> None:
    server.fail("POST .*/instances", "QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1.")
    with pytest.raises(EnvironmentFault, match=r"Limit: 24\.0 in region europe-west1; ask for fewer or smaller VMs"):
        cluster(settings).up()
    assert server.names() == GROUND


def test_a_busy_api_is_asked_again(server: GceServer, settings: dict[str, Any]) -> None:
    server.refuse("POST .*/firewalls", 503, "backendError", "Try again", times=2)
    server.refuse("GET .*/instances/.*", 403, "rateLimitExceeded", "Too many", times=1)
    assert cluster(settings, patience="30s").up() == 6


def test_a_vm_that_is_still_being_made_is_removed_when_that_is_done(
    server: GceServer, settings: dict[str, Any]
) -> None:
    subject = cluster(settings, patience="30s")
    subject.up()
    server.refuse("DELETE .*/instances/.*", 400, "resourceNotReady", "The resource is not ready", times=2)
    assert subject.down() == 6
    assert server.names() == set()


def test_an_expired_sign_in_says_how_to_sign_in_again() -> None:
    words = "list instances: token has expired; sign in again: gcloud auth"
    with pytest.raises(EnvironmentFault, match=words), in_words("list instances"):
        raise RefreshError("token has expired")  # type: ignore[no-untyped-call]


def test_an_error_that_is_not_the_clouds_is_left_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), in_words("list instances"):
        raise ZeroDivisionError


@pytest.mark.parametrize("wrong", [{"project": "no-such"}, {"zone": "europe-west9-z"}])
def test_a_project_or_zone_that_is_not_there_is_named(
    server: GceServer, settings: dict[str, Any], wrong: dict[str, str]
) -> None:
    (value,) = wrong.values()
    with pytest.raises(UserError, match=f"'{value}'"):
        cluster(settings, **wrong).plan()
    assert server.changes() == []


def test_an_endpoint_where_nobody_answers_is_named(settings: dict[str, Any]) -> None:
    with GceServer() as gone:
        pass
    with pytest.raises(EnvironmentFault, match="cannot reach Google Cloud") as caught:
        cluster(settings, endpoint=gone.url).up()
    assert "check the network and `endpoint`" in str(caught.value)


def test_missing_credentials_are_told_with_the_way_to_get_some(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(EnvironmentFault, match="gcloud auth application-default login"):
        cluster(settings, endpoint="https://127.0.0.1:1").up()


def test_a_missing_client_library_names_the_extra(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)
    with pytest.raises(UserError, match=r"pip install 'seep-streaming\[cloud\]'"):
        cluster(settings).plan()


def test_an_operation_that_does_not_end_is_given_up(server: GceServer, settings: dict[str, Any]) -> None:
    server.requests_per_operation = 1_000_000
    with pytest.raises(EnvironmentFault, match=r"create firewall rule seep-demo-members: not done within 0\.01 s"):
        cluster(settings, timeout="10ms").up()


# -- cost --------------------------------------------------------------------------------


def test_the_price_of_each_vm_is_that_of_its_type_in_the_file(settings: dict[str, Any]) -> None:
    machines = {"master": "e2-small", "worker": "c3-standard-4", "workers": 1, "spot": True}
    priced = cluster(settings, machines=machines, hourly={"e2-small": 0.017, "c3-standard-4": 0.2})
    assert priced.hourly == {"instance seep-demo-master": 0.017, "instance seep-demo-worker-1": None}
    spot = cluster(settings, machines=machines, hourly={"c3-standard-4:spot": 0.05})
    assert spot.hourly == {"instance seep-demo-master": None, "instance seep-demo-worker-1": 0.05}
