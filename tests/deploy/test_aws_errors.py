"""What goes wrong at Amazon's is told in words: which call, for what, and what to do."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.deploy.ec2.cluster import open_cluster
from seep.deploy.ec2.settings import Ec2Settings
from tests.deploy.ec2_kit import REGION, client, section
from tests.deploy.scripted_server import refusal, serving
from vmpool.aws.client import Aws
from vmpool.aws.errors import AwsFault, AwsMistake
from vmpool.aws.settings import AwsAccess

pytestmark = pytest.mark.usefixtures("at_once", "credentials")


def run_at(url: str, **more: Any) -> Any:
    aws = Aws(AwsAccess.model_validate({"region": REGION, "endpoint_url": url, "poll": "1ms", **more}))
    return aws.call("ec2", "run_instances", "worker-1", MinCount=1, MaxCount=1)


@pytest.mark.parametrize(
    ("code", "again", "advice"),
    [
        ("VcpuLimitExceeded", True, "quota is used up; ask for more"),
        ("MaxSpotInstanceCountExceeded", True, "quota is used up"),
        ("InsufficientInstanceCapacity", True, "none of these machines left"),
        ("RequestLimitExceeded", True, "try again"),
        ("UnauthorizedOperation", False, "docs/deploy.md lists"),
        ("RequestExpired", False, "log in again"),
        ("AuthFailure", False, "log in again"),
        ("SomethingNew", True, "documentation of this code"),
    ],
)
def test_a_refusal_names_the_call_the_vm_and_what_to_do(code: str, again: bool, advice: str) -> None:
    with serving(refusal(code, "Not today.")) as server, pytest.raises(AwsFault) as caught:
        run_at(server.url)
    assert str(caught.value).startswith(f"worker-1: ec2 RunInstances failed ({code}: Not today); ")
    assert advice in str(caught.value)
    assert caught.value.again is again


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("InvalidAMIID.NotFound", "set image"),
        ("InvalidKeyPair.NotFound", "set key_name"),
        ("InvalidSubnetID.NotFound", "set subnet"),
        ("VPCIdNotSpecified", "no default VPC; set subnet"),
        ("Unsupported", "set machines.worker or subnet"),
    ],
)
def test_a_refusal_of_a_setting_is_the_users_to_mend(code: str, advice: str) -> None:
    with serving(refusal(code)) as server, pytest.raises(AwsMistake, match=advice):
        run_at(server.url)


def test_a_throttled_call_is_repeated_with_the_same_client_token() -> None:
    good = "<RunInstancesResponse><instancesSet/></RunInstancesResponse>"
    with serving(refusal("RequestLimitExceeded"), (200, good)) as server:
        assert run_at(server.url)["Instances"] == []
        tokens = {part for each in server.asked for part in each.body.split("&") if part.startswith("ClientToken")}
    assert (len(server.asked), len(tokens)) == (2, 1)


def test_an_error_that_passes_by_itself_is_waited_out() -> None:
    good = "<DeleteSecurityGroupResponse><return>true</return></DeleteSecurityGroupResponse>"
    with serving(refusal("DependencyViolation"), refusal("DependencyViolation"), (200, good)) as server:
        aws = Aws(AwsAccess(region=REGION, endpoint_url=server.url, poll=0.001))
        aws.call("ec2", "delete_security_group", "group", retry="DependencyViolation", GroupId="sg-1")
    assert len(server.asked) == 3


def test_an_error_that_does_not_pass_is_told_in_the_end() -> None:
    with serving(refusal("DependencyViolation")) as server:
        aws = Aws(AwsAccess(region=REGION, endpoint_url=server.url, poll=0.001, patience=0.01))
        with pytest.raises(AwsFault, match="DependencyViolation"):
            aws.call("ec2", "delete_security_group", "group", retry="DependencyViolation", GroupId="sg-1")


def test_missing_credentials_say_where_they_are_looked_for(without_credentials: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        without_credentials.delenv(name)
    with pytest.raises(AwsFault, match="no credentials were found: set profile") as caught:
        run_at("http://127.0.0.1:1")
    assert caught.value.again is False


def test_an_endpoint_that_nobody_listens_at_is_named() -> None:
    with pytest.raises(AwsFault, match=r"127\.0\.0\.1:1/.*region and endpoint_url") as caught:
        run_at("http://127.0.0.1:1")
    assert caught.value.again is True


def test_an_unknown_profile_is_the_users_to_mend() -> None:
    with pytest.raises(AwsMistake, match=r"nobody.*set profile"):
        run_at("http://127.0.0.1:1", profile="nobody")


def test_no_region_at_all_is_the_users_to_mend() -> None:
    with pytest.raises(AwsMistake, match="set region, or AWS_REGION"):
        run_at("http://127.0.0.1:1", region=None)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'seep-streaming\[cloud\]'"):
        run_at("http://127.0.0.1:1")


def up(url: str, **more: Any) -> SeepError:
    """The error that `up` ends with."""
    with pytest.raises(SeepError) as caught:
        open_cluster(Ec2Settings.model_validate(section(url, **more))).up()
    return caught.value


def test_an_image_that_is_not_there_is_named(endpoint: str) -> None:
    failure = up(endpoint, image="ami-0123456789abcdef0")
    assert isinstance(failure, UserError)
    assert "image of launch template seep-demo-master" in str(failure)
    assert "ami-0123456789abcdef0" in str(failure)


def test_a_parameter_that_is_not_there_is_named(endpoint: str) -> None:
    failure = up(endpoint, image_parameter="/no/such")
    assert isinstance(failure, UserError)
    assert str(failure).startswith("image_parameter /no/such: ssm GetParameter failed")


def test_a_region_without_a_default_vpc_asks_for_a_subnet(endpoint: str) -> None:
    ec2 = client("ec2", endpoint)
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    for vpc in ec2.describe_vpcs()["Vpcs"]:
        ec2.delete_vpc(VpcId=vpc["VpcId"])
    failure = up(endpoint)
    assert isinstance(failure, UserError)
    assert str(failure) == "network of cluster demo: region eu-west-1 has no default VPC; set subnet"


def test_an_environment_that_cannot_be_read_is_told_before_an_instance_runs(endpoint: str) -> None:
    failure = up(endpoint, environment="no-such.lock")
    assert isinstance(failure, UserError)
    assert str(failure).startswith("environment: no-such.lock cannot be read")


def test_an_environment_too_large_for_a_start_up_script_is_refused(endpoint: str, tmp_path: Any) -> None:
    path = tmp_path / "large.lock"
    path.write_text("\n".join(f"package-{number}==1.{number}" for number in range(2_000)), encoding="utf-8")
    assert "EC2 takes 16,384; pin less, or name the https:// URL" in str(up(endpoint, environment=str(path)))
