"""What the tests of EC2 share: a look into the server past our own code, and files that point at it."""

from __future__ import annotations

import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import yaml

from seep.deploy.ec2.cluster import Ec2Cluster
from seep.deploy.ec2.part import Site
from seep.deploy.ec2.settings import Ec2Settings
from vmpool.aws.client import Aws

REGION = "eu-west-1"
PARAMETER = "/images/debian-12"


@cache
def client(service: str, url: str) -> Any:
    """A service without anything of ours in between."""
    return boto3.client(service, region_name=REGION, endpoint_url=url)


def reset(url: str) -> None:
    """Empties the server, but for a parameter that names an image."""
    with urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")):
        client("ssm", url).put_parameter(Name=PARAMETER, Value=images(url)[0], Type="String")


def images(url: str) -> list[str]:
    """All that the server has, which are the same after a reset."""
    return [each["ImageId"] for each in client("ec2", url).describe_images()["Images"]]


def section(url: str, **more: Any) -> dict[str, Any]:
    """The section `ec2:` for that server."""
    access = {"region": REGION, "endpoint_url": url, "patience": "5s", "poll": "1ms"}
    return {"name": "demo", "image_parameter": PARAMETER, **access, **more}


def cluster(url: str, **more: Any) -> Ec2Cluster:
    """A cluster at that server, by the settings of `section`."""
    return Ec2Cluster(Site(_aws(url), Ec2Settings.model_validate(section(url, **more))), lambda _: None)


@cache
def _aws(url: str) -> Aws:
    """One for all clusters, as it takes longer to make than a cluster."""
    return Aws(Ec2Settings.model_validate(section(url)))


def written(directory: Path, content: dict[str, Any]) -> Path:
    """A cluster file."""
    path = directory / "ec2.yaml"
    path.write_text(yaml.safe_dump({"ec2": content}), encoding="utf-8")
    return path


def running(url: str) -> list[dict[str, Any]]:
    """Instances that are there, of whatever cluster."""
    return [each for each in instances(url) if each["State"]["Name"] in ("pending", "running")]


def instances(url: str) -> list[dict[str, Any]]:
    """All, in whatever state."""
    reservations = client("ec2", url).describe_instances()["Reservations"]
    return [each for reservation in reservations for each in reservation["Instances"]]


def everything(url: str) -> set[str]:
    """All that a cluster could leave behind, in words."""
    ec2, iam = client("ec2", url), client("iam", url)
    return {
        *(each["InstanceId"] for each in running(url)),
        *(each["VolumeId"] for each in volumes(url)),
        *(each["LaunchTemplateName"] for each in ec2.describe_launch_templates()["LaunchTemplates"]),
        *(each["GroupId"] for each in ec2.describe_security_groups()["SecurityGroups"]),
        *(f"role {each['RoleName']}" for each in iam.list_roles()["Roles"]),
        *(f"profile {each['InstanceProfileName']}" for each in iam.list_instance_profiles()["InstanceProfiles"]),
    }


def volumes(url: str) -> list[dict[str, Any]]:
    """Those that have our tags; this server keeps others of its own for every instance."""
    filters = [{"Name": "tag-key", "Values": ["seep:cluster"]}]
    return client("ec2", url).describe_volumes(Filters=filters)["Volumes"]


def tags_of(thing: dict[str, Any]) -> dict[str, str]:
    """As a mapping."""
    return {each["Key"]: each["Value"] for each in thing.get("Tags", ())}
