"""A cluster in EC2, against a real server for Amazon's interfaces on loopback."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from primitives.errors import UserError
from seep.deploy.ec2.cluster import Ec2Cluster, open_cluster
from seep.deploy.ec2.identity import role_name
from seep.deploy.ec2.settings import Ec2Settings
from tests.deploy.ec2_kit import REGION, client, cluster, everything, images, running, section, tags_of, volumes
from vmpool.aws.client import Aws
from vmpool.aws.provider import from_settings


def named(url: str, vm: str) -> dict[str, Any]:
    return next(each for each in running(url) if tags_of(each).get("seep:vm") == vm)


def template(url: str, role: str) -> dict[str, Any]:
    """The default version of a role's launch template."""
    found = client("ec2", url).describe_launch_template_versions(
        LaunchTemplateName=f"seep-demo-{role}", Versions=["$Default"]
    )
    return found["LaunchTemplateVersions"][0]["LaunchTemplateData"]


def script(url: str, role: str) -> str:
    return base64.b64decode(template(url, role)["UserData"]).decode()


def test_up_makes_a_master_and_workers_that_know_it(endpoint: str) -> None:
    made = cluster(endpoint)
    assert made.up() == 9
    assert sorted(tags_of(each)["seep:vm"] for each in running(endpoint)) == ["master", "worker-1", "worker-2"]
    assert made.master_url() == f"spark://{named(endpoint, 'master')['PrivateIpAddress']}:7077"
    assert str(made.master_url()) in script(endpoint, "worker")


def test_a_second_up_changes_nothing(endpoint: str) -> None:
    cluster(endpoint).up()
    before = everything(endpoint)
    assert cluster(endpoint).up() == 0
    assert everything(endpoint) == before


def test_down_removes_exactly_what_up_made(endpoint: str) -> None:
    before = everything(endpoint)
    made = cluster(endpoint)
    made.up()
    assert made.down() == 9
    assert everything(endpoint) == before
    assert made.down() == 0


def test_down_ends_workers_of_the_pool_and_leaves_other_clusters_alone(endpoint: str) -> None:
    other = cluster(endpoint, name="other")
    other.up()
    before = everything(endpoint)
    cluster(endpoint).up()
    access = {"region": REGION, "endpoint_url": endpoint, "poll": "1ms"}
    from_settings({"cluster": "demo", **access}, run="run7", master="", nodes_per_vm=1).start("vm1")
    assert tags_of(named(endpoint, "run7-vm1"))["seep:run"] == "run7"
    cluster(endpoint).down()
    assert everything(endpoint) == before


def test_the_plan_says_what_would_be_made_and_makes_nothing(endpoint: str) -> None:
    before = everything(endpoint)
    plan = cluster(endpoint).plan()
    assert [line.split()[0] for line in plan] == ["create"] * 9
    assert plan[-1] == "create 2 workers (m6i.large)"
    assert everything(endpoint) == before


class Broken(Exception):
    """Stands for the end of the process."""


def break_after(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """The process ends once so many calls have changed something."""
    original, done = Aws.call, 0

    def call(self: Aws, service: str, action: str, about: str, **parameters: Any) -> Any:
        nonlocal done
        answer = original(self, service, action, about, **parameters)
        done += not action.startswith(("get_", "describe_", "list_"))
        if done == changes:
            raise Broken
        return answer

    monkeypatch.setattr(Aws, "call", call)


def is_broken_off(endpoint: str, act: Callable[[Ec2Cluster], int], changes: int) -> bool:
    """Whether it did not come to its end before so many changes."""
    with pytest.MonkeyPatch.context() as patch:
        break_after(patch, changes)
        try:
            act(cluster(endpoint))
        except Broken:
            return True
    return False


#: Calls that change something while a cluster with two workers is brought up, and while it is taken down.
UP, DOWN = 14, 12


def test_an_up_broken_off_after_every_change_makes_each_once_and_ends_with_the_whole_cluster(endpoint: str) -> None:
    broken = [is_broken_off(endpoint, Ec2Cluster.up, 1) for _ in range(UP + 1)]
    assert broken == [True] * UP + [False]
    assert sorted(tags_of(each)["seep:vm"] for each in running(endpoint)) == ["master", "worker-1", "worker-2"]
    assert {line.split()[0] for line in cluster(endpoint).plan()} == {"keep"}


@pytest.mark.parametrize(
    "changes", [pytest.param(n, marks=[] if n % 9 == 1 else pytest.mark.acceptance) for n in range(1, UP + 1)]
)
def test_an_up_that_was_broken_off_anywhere_can_be_taken_down(endpoint: str, changes: int) -> None:
    before = everything(endpoint)
    assert is_broken_off(endpoint, Ec2Cluster.up, changes)
    cluster(endpoint).down()
    assert everything(endpoint) == before


def test_an_up_that_was_broken_off_goes_on_to_its_end(endpoint: str) -> None:
    assert is_broken_off(endpoint, Ec2Cluster.up, UP // 2)
    assert cluster(endpoint).up() > 0
    assert cluster(endpoint).up() == 0


def test_a_down_broken_off_after_every_change_makes_each_once_and_leaves_nothing(endpoint: str) -> None:
    before = everything(endpoint)
    cluster(endpoint).up()
    broken = [is_broken_off(endpoint, Ec2Cluster.down, 1) for _ in range(DOWN + 1)]
    assert broken == [True] * DOWN + [False]
    assert everything(endpoint) == before


def test_a_half_made_part_is_planned_to_be_completed(endpoint: str) -> None:
    assert is_broken_off(endpoint, Ec2Cluster.up, 2)
    assert cluster(endpoint).plan()[1] == f"complete instance profile {role_name('demo', REGION, 'worker')}"


def test_scale_starts_and_ends_workers_but_none_of_the_pool(endpoint: str) -> None:
    made = cluster(endpoint)
    made.up()
    access = {"region": REGION, "endpoint_url": endpoint, "poll": "1ms"}
    from_settings({"cluster": "demo", **access}, run="run7", master="", nodes_per_vm=1).start("vm1")
    first = named(endpoint, "worker-1")["InstanceId"]
    assert (made.scale(4), made.scale(4), made.scale(1)) == (2, 0, 3)
    assert sorted(tags_of(each)["seep:vm"] for each in running(endpoint)) == ["master", "run7-vm1", "worker-1"]
    assert named(endpoint, "worker-1")["InstanceId"] == first


@pytest.mark.parametrize("workers", [-1, 21])
def test_scale_keeps_to_the_most_that_the_file_allows(endpoint: str, workers: int) -> None:
    with pytest.raises(UserError, match=r"machines\.most, which is 20"):
        cluster(endpoint).scale(workers)


def test_scale_needs_a_cluster_that_is_up(endpoint: str) -> None:
    with pytest.raises(UserError, match="bring it up first"):
        cluster(endpoint).scale(3)


def test_more_instances_than_fit_on_a_page_are_all_found(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster(endpoint, machines={"workers": 5})
    made.up()
    original = Aws.items

    def small_pages(self: Aws, service: str, action: str, about: str, key: str, **parameters: Any) -> list[Any]:
        pages = {"PaginationConfig": {"PageSize": 2}} if action == "describe_instances" else {}
        return original(self, service, action, about, key, **parameters, **pages)

    monkeypatch.setattr(Aws, "items", small_pages)
    assert {line.split()[0] for line in made.plan()} == {"keep"}


def test_everything_has_the_tags_of_the_cluster_and_of_the_user(endpoint: str) -> None:
    cluster(endpoint, tags={"team": "streams"}).up()
    ec2, iam = client("ec2", endpoint), client("iam", endpoint)
    filters = [{"Name": "group-name", "Values": ["seep-demo"]}]
    roles = [role_name("demo", REGION, role) for role in ("master", "worker")]
    things = [
        *running(endpoint),
        *volumes(endpoint),
        *ec2.describe_launch_templates()["LaunchTemplates"],
        *ec2.describe_security_groups(Filters=filters)["SecurityGroups"],
        *(iam.get_role(RoleName=name)["Role"] for name in roles),
        *(iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"] for name in roles),
    ]
    assert len(things) == 3 + 3 + 2 + 1 + 2 + 2
    for each in things:
        tags = tags_of(each)
        assert (tags["seep:cluster"], tags["team"], tags["Name"].startswith("seep-demo")) == ("demo", "streams", True)
        assert "seep:role" in tags


def rules(url: str) -> set[tuple[Any, ...]]:
    filters = [{"Name": "group-name", "Values": ["seep-demo"]}]
    group = client("ec2", url).describe_security_groups(Filters=filters)["SecurityGroups"][0]
    return {
        (each["IpProtocol"], each.get("FromPort"), source.get("CidrIp") or source.get("CidrIpv6") or "members")
        for each in group["IpPermissions"]
        for source in (*each["UserIdGroupPairs"], *each["IpRanges"], *each.get("Ipv6Ranges", ()))
    }


def test_without_admin_only_members_reach_each_other(endpoint: str) -> None:
    cluster(endpoint).up()
    assert rules(endpoint) == {("-1", None, "members")}


def test_a_changed_admin_range_replaces_the_old_rules(endpoint: str) -> None:
    cluster(endpoint, admin="203.0.113.7", admin_ports=[22]).up()
    assert rules(endpoint) == {("-1", None, "members"), ("tcp", 22, "203.0.113.7/32")}
    assert cluster(endpoint, admin="2001:db8::/64", admin_ports=[22, 8080]).up() == 1
    assert rules(endpoint) == {
        ("-1", None, "members"),
        ("tcp", 22, "2001:db8::/64"),
        ("tcp", 8080, "2001:db8::/64"),
    }


def test_changed_settings_make_a_new_version_for_the_workers_to_come(endpoint: str) -> None:
    cluster(endpoint).up()
    changed = cluster(endpoint, machines={"worker": "c6i.large", "nodes_per_worker": 3, "spot": True})
    assert [line.split()[0] for line in changed.plan()] == ["keep"] * 7 + ["complete", "keep"]
    assert changed.up() == 1
    now = template(endpoint, "worker")
    assert (now["InstanceType"], now["InstanceMarketOptions"]["MarketType"]) == ("c6i.large", "spot")
    assert "--cores 3 spark://" in script(endpoint, "worker")
    assert "InstanceMarketOptions" not in template(endpoint, "master")


def test_a_newer_image_behind_the_parameter_alone_changes_nothing(endpoint: str) -> None:
    cluster(endpoint).up()
    parameter = {"Name": "/images/debian-12", "Value": images(endpoint)[1], "Type": "String"}
    client("ssm", endpoint).put_parameter(Overwrite=True, **parameter)
    assert cluster(endpoint).up() == 0


def test_templates_ask_for_what_is_safe(endpoint: str) -> None:
    subnet = client("ec2", endpoint).describe_subnets()["Subnets"][0]["SubnetId"]
    cluster(endpoint, subnet=subnet, key_name="mine", volume_gb=50).up()
    wanted = template(endpoint, "worker")
    disk = wanted["BlockDeviceMappings"][0]["Ebs"]
    assert wanted["MetadataOptions"]["HttpTokens"] == "required"
    assert (disk["Encrypted"], disk["VolumeSize"], disk["DeleteOnTermination"]) == (True, 50, True)
    assert (wanted["NetworkInterfaces"][0]["SubnetId"], wanted["KeyName"]) == (subnet, "mine")
    assert wanted["IamInstanceProfile"]["Name"] == role_name("demo", REGION, "worker")


def test_the_masters_role_may_do_what_the_pool_needs_to_this_cluster_and_workers_nothing(endpoint: str) -> None:
    cluster(endpoint).up()
    iam = client("iam", endpoint)
    policy = iam.get_role_policy(RoleName=role_name("demo", REGION, "master"), PolicyName="seep-pool")["PolicyDocument"]
    statements = {each["Sid"]: each for each in policy["Statement"]}
    assert {each["Action"] for each in statements.values()} == {
        "ec2:RunInstances",
        "ec2:CreateTags",
        "ec2:TerminateInstances",
        "ec2:DescribeInstances",
        "iam:PassRole",
    }
    ends = statements["EndWorkers"]["Condition"]["StringEquals"]
    assert ends == {"aws:ResourceTag/seep:cluster": "demo", "aws:ResourceTag/seep:role": "worker"}
    assert statements["HandOverTheWorkersRole"]["Resource"].endswith(f":role/{role_name('demo', REGION, 'worker')}")
    assert "@" not in json.dumps(policy)
    assert [sid for sid, each in statements.items() if "Condition" not in each] == []
    assert iam.list_role_policies(RoleName=role_name("demo", REGION, "worker"))["PolicyNames"] == []


def test_a_policy_attached_by_hand_does_not_keep_a_role_from_going(endpoint: str) -> None:
    before = everything(endpoint)
    cluster(endpoint).up()
    iam = client("iam", endpoint)
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
    arn = iam.create_policy(PolicyName="read", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role_name("demo", REGION, "worker"), PolicyArn=arn)
    cluster(endpoint).down()
    assert everything(endpoint) == before


def foreign_group(url: str) -> None:
    vpc = client("ec2", url).describe_vpcs()["Vpcs"][0]["VpcId"]
    client("ec2", url).create_security_group(GroupName="seep-demo", Description="not ours", VpcId=vpc)


def foreign_role(url: str) -> None:
    client("iam", url).create_role(RoleName=role_name("demo", REGION, "master"), AssumeRolePolicyDocument="{}")


def foreign_template(url: str) -> None:
    data = {"InstanceType": "m6i.large"}
    client("ec2", url).create_launch_template(LaunchTemplateName="seep-demo-worker", LaunchTemplateData=data)


@pytest.mark.parametrize("make", [foreign_group, foreign_role, foreign_template])
def test_what_has_our_name_but_not_our_tag_is_never_touched(endpoint: str, make: Any) -> None:
    make(endpoint)
    before = everything(endpoint)
    for act in (Ec2Cluster.plan, Ec2Cluster.up, Ec2Cluster.status, Ec2Cluster.down):
        with pytest.raises(UserError, match="is not of this cluster; choose another name"):
            act(cluster(endpoint))
    assert everything(endpoint) == before


def test_status_tells_each_part_and_what_is_missing(endpoint: str) -> None:
    assert set(cluster(endpoint).status().values()) == {None}
    made = cluster(endpoint)
    made.up()
    ids = [named(endpoint, vm)["InstanceId"] for vm in ("worker-1", "worker-2")]
    status = made.status()
    assert None not in status.values()
    assert set(str(status["2 workers (m6i.large)"]).split(", ")) == set(ids)


def test_prices_come_from_the_file_only(endpoint: str) -> None:
    prices = {"m6i.large": 0.1}
    assert dict(cluster(endpoint, hourly=prices).hourly) == {"master (m6i.large)": 0.1, "2 workers (m6i.large)": 0.2}
    spot = cluster(endpoint, hourly=prices, machines={"spot": True, "workers": 1})
    assert dict(spot.hourly) == {"master (m6i.large)": 0.1, "1 worker (m6i.large, spot)": None}


def test_a_cluster_of_no_workers_is_a_master_that_a_pool_can_join_workers_to(endpoint: str) -> None:
    made = cluster(endpoint, machines={"workers": 0})
    made.up()
    assert [tags_of(each)["seep:vm"] for each in running(endpoint)] == ["master"]
    assert made.up() == 0


def test_what_goes_on_is_told(endpoint: str) -> None:
    said: list[str] = []
    open_cluster(Ec2Settings.model_validate(section(endpoint)), said.append).up()
    assert said[0] == "[1/9] create role seep-demo-eu-west-1-worker"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tags": {"seep:vm": "x"}}, "seep:vm cannot be chosen"),
        ({"image": "debian"}, "should match pattern"),
        ({"name": "No Spaces"}, "should match pattern"),
    ],
)
def test_settings_that_make_no_sense_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Ec2Settings.model_validate(section("http://127.0.0.1:1", **more))
