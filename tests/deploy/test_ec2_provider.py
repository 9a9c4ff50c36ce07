"""The pool's VMs from EC2: once by name, ended for good, and told of when they are lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs

import pytest

from primitives.errors import UserError
from tests.deploy.ec2_kit import REGION, client, instances, running, tags_of
from tests.deploy.scripted_server import refusal, serving
from vmpool.aws.client import Aws
from vmpool.aws.errors import AwsFault
from vmpool.aws.instances import Ec2Instance, await_running
from vmpool.aws.provider import Ec2Provider, from_settings
from vmpool.aws.settings import AwsAccess
from vmpool.provider import Machine, ProviderError


def provider(url: str, run: str = "run7", **more: Any) -> Ec2Provider:
    settings = {"cluster": "demo", "region": REGION, "endpoint_url": url, "poll": "1ms", **more}
    return from_settings(settings, run=run, master="spark://10.0.0.5:7077", nodes_per_vm=2)


@pytest.fixture
def cluster(server_with_master: str, credentials: str) -> Iterator[str]:
    """A cluster of a master only is up; its server. Whatever a test starts besides is ended after it."""
    assert credentials
    yield server_with_master
    started = [each["InstanceId"] for each in instances(server_with_master) if tags_of(each).get("seep:vm") != "master"]
    if started:
        client("ec2", server_with_master).terminate_instances(InstanceIds=started)


def workers(url: str) -> set[str]:
    return {tags_of(each)["seep:vm"] for each in running(url)} - {"master"}


def test_a_vm_is_an_instance_of_the_workers_template_with_its_address(cluster: str) -> None:
    machine = provider(cluster, tags={"team": "streams"}).start("vm1")
    instance = next(each for each in running(cluster) if each["InstanceId"] == machine.id)
    assert (machine.name, machine.host) == ("vm1", instance["PrivateIpAddress"])
    tags = tags_of(instance)
    assert (tags["seep:role"], tags["seep:vm"], tags["seep:run"], tags["team"]) == (
        "worker",
        "run7-vm1",
        "run7",
        "streams",
    )


def test_the_same_name_again_gives_the_same_vm(cluster: str) -> None:
    vms = provider(cluster)
    assert vms.start("vm1") == vms.start("vm1")
    assert workers(cluster) == {"run7-vm1"}


def test_a_name_whose_vm_was_ended_gives_a_new_one(cluster: str) -> None:
    vms = provider(cluster)
    first = vms.start("vm1")
    vms.stop(first)
    assert vms.start("vm1").id != first.id
    assert workers(cluster) == {"run7-vm1"}


def test_vms_can_be_started_on_several_threads(cluster: str) -> None:
    vms = provider(cluster)
    with ThreadPoolExecutor(4) as threads:
        machines = list(threads.map(vms.start, ["a", "b", "c", "d"]))
    assert len({each.id for each in machines}) == 4


def test_stopping_what_is_gone_is_no_error(cluster: str) -> None:
    vms = provider(cluster)
    machine = vms.start("vm1")
    vms.stop(machine)
    vms.stop(machine)
    vms.stop(Machine("vm9", "i-0123456789abcdef0"))
    assert workers(cluster) == set()


def test_a_machine_of_another_cluster_is_not_stopped(cluster: str) -> None:
    other = client("ec2", cluster).run_instances(MinCount=1, MaxCount=1, ImageId="ami-1")["Instances"][0]["InstanceId"]
    provider(cluster).stop(Machine("vm1", other))
    assert other in {each["InstanceId"] for each in running(cluster)}


def test_the_master_is_never_stopped(cluster: str) -> None:
    master = running(cluster)[0]["InstanceId"]
    provider(cluster).stop(Machine("vm1", master))
    assert [each["InstanceId"] for each in running(cluster)] == [master]


def test_lost_are_those_that_ended_stopped_or_are_unknown(cluster: str) -> None:
    vms, ec2 = provider(cluster), client("ec2", cluster)
    well, ended, stopped = (vms.start(name) for name in ("well", "ended", "stopped"))
    unknown = Machine("unknown", "i-0123456789abcdef0")
    assert vms.lost([well, ended, stopped]) == set()
    ec2.terminate_instances(InstanceIds=[ended.id])
    ec2.stop_instances(InstanceIds=[stopped.id])
    assert vms.lost([well, ended, stopped, unknown]) == {"ended", "stopped", "unknown"}


def test_of_no_machines_none_is_lost_and_nobody_is_asked() -> None:
    assert provider("http://127.0.0.1:1").lost([]) == set()


def test_close_ends_all_of_this_run_and_nothing_else(cluster: str) -> None:
    vms = provider(cluster)
    vms.start("vm1")
    vms.start("vm2")
    provider(cluster, run="run8").start("vm1")
    provider(cluster, run="run7-b").start("vm1")
    vms.close()
    assert workers(cluster) == {"run8-vm1", "run7-b-vm1"}


def test_without_a_cluster_no_vm_is_to_be_had_until_somebody_acts(cluster: str) -> None:
    with pytest.raises(ProviderError, match="bring the cluster up first") as caught:
        provider(cluster, cluster="not-there").start("vm1")
    assert caught.value.again is False


@pytest.mark.usefixtures("credentials")
def test_a_quota_that_is_used_up_may_be_free_later() -> None:
    none = (200, "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>")
    with serving(none, refusal("VcpuLimitExceeded")) as server, pytest.raises(ProviderError, match="quota") as caught:
        provider(server.url).start("vm1")
    assert caught.value.again is True


INSTANCE = (
    "<item><instanceId>i-2</instanceId><instanceState><code>16</code><name>running</name></instanceState>"
    "<privateIpAddress>10.0.0.9</privateIpAddress></item>"
)


@pytest.mark.usefixtures("credentials")
def test_a_token_whose_instance_has_ended_gives_way_to_the_next() -> None:
    none = (200, "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>")
    started = (200, f"<RunInstancesResponse><instancesSet>{INSTANCE}</instancesSet></RunInstancesResponse>")
    reservation = f"<item><instancesSet>{INSTANCE}</instancesSet></item>"
    runs = (
        200,
        f"<DescribeInstancesResponse><reservationSet>{reservation}</reservationSet></DescribeInstancesResponse>",
    )
    with serving(none, refusal("IdempotentInstanceTerminated"), started, runs) as server:
        assert provider(server.url).start("vm1").id == "i-2"
    asked = [parse_qs(each.body) for each in server.asked]
    tokens = [each["ClientToken"][0] for each in asked if each["Action"] == ["RunInstances"]]
    assert len(set(tokens)) == 2


def test_an_instance_that_ends_instead_of_running_is_told(cluster: str) -> None:
    vms = provider(cluster)
    machine = vms.start("vm1")
    vms.stop(machine)
    aws = Aws(AwsAccess(region=REGION, endpoint_url=cluster, poll=0.001, patience=0.1))
    with pytest.raises(AwsFault, match="run7-vm1: waited for instance running"):
        await_running(aws, [Ec2Instance(machine.id, "run7-vm1", "worker", "pending", None)])


def test_settings_are_checked_field_by_field() -> None:
    with pytest.raises(UserError, match=r"pool\.settings: cluster is missing; zone is unknown"):
        from_settings({"zone": "a"}, run="r", master="", nodes_per_vm=1)
