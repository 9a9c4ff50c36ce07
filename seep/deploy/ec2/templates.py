"""Launch templates: the common settings of a role's instances, so that the pool needs no right to choose them."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from primitives.errors import UserError
from seep.deploy.ec2.identity import role_name
from seep.deploy.ec2.network import SecurityGroup
from seep.deploy.ec2.part import CloudPart
from seep.deploy.startup import master_script, worker_script
from vmpool.aws.instances import ALIVE, Ec2Instance, find_instances
from vmpool.aws.names import MASTER, ROLE, WORKER, tag_list, tags_of, template_name

#: The most bytes of a start-up script in EC2.
_SCRIPT_LIMIT = 16_384
_SPOT = {
    "MarketType": "spot",
    "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
}


def find_master(part: CloudPart) -> Ec2Instance | None:
    """Returns the cluster's master, if there is one."""
    masters = find_instances(part.site.aws, part.site.cluster, {ROLE: MASTER})
    return next((each for each in masters if each.state in ALIVE), None)


@dataclass(frozen=True, slots=True)
class LaunchTemplate(CloudPart):
    """A template whose default version fits the settings.

    The description of a version is a digest of its content. An image from `image_parameter` is not part of the digest:
    a newer image alone does not make a new version.
    """

    role: str

    @property
    def name(self) -> str:
        """The name, which the pool's provider also uses."""
        return template_name(self.site.cluster, self.role)

    @property
    def label(self) -> str:
        return f"launch template {self.name}"

    def find(self) -> str | None:
        there, wanted = self.left(), self._wanted()
        return there if there and wanted and self._digest() == digest(wanted) else None

    def left(self) -> str | None:
        filters = [{"Name": "launch-template-name", "Values": [self.name]}]
        found = self.site.aws.items("ec2", "describe_launch_templates", self.label, "LaunchTemplates", Filters=filters)
        for template in found:
            self.site.check_ours(tags_of(template), self.label)
        return str(found[0]["LaunchTemplateId"]) if found else None

    def create(self) -> str:
        wanted = self._wanted()
        if wanted is None:
            raise UserError(f"{self.label} needs the security group, and for workers the master; run up again")
        content = {
            "LaunchTemplateName": self.name,
            "VersionDescription": digest(wanted),
            "LaunchTemplateData": wanted | self._image(),
        }
        there = self.left()
        if there:
            self._renew(content)
        return there or self._make(content)

    def delete(self) -> None:
        absent = ("InvalidLaunchTemplateName.NotFoundException",)
        self.site.aws.call("ec2", "delete_launch_template", self.label, absent=absent, LaunchTemplateName=self.name)

    def _make(self, content: dict[str, Any]) -> str:
        tags = tag_list(self.site.tags(self.role, self.name))
        specification = [{"ResourceType": "launch-template", "Tags": tags}]
        answer = self.site.aws.call(
            "ec2", "create_launch_template", self.label, TagSpecifications=specification, **content
        )
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def _renew(self, content: dict[str, Any]) -> None:
        """Makes a new version, for instances that are started from now on."""
        answer = self.site.aws.call("ec2", "create_launch_template_version", self.label, **content)
        number = str(answer["LaunchTemplateVersion"]["VersionNumber"])
        self.site.aws.call(
            "ec2", "modify_launch_template", self.label, LaunchTemplateName=self.name, DefaultVersion=number
        )

    def _digest(self) -> str:
        versions = self.site.aws.items(
            "ec2",
            "describe_launch_template_versions",
            self.label,
            "LaunchTemplateVersions",
            LaunchTemplateName=self.name,
            Versions=["$Default"],
        )
        return str(versions[0].get("VersionDescription", ""))

    def _wanted(self) -> dict[str, Any] | None:
        """Returns everything except the image and its disk; None while a referenced part does not exist."""
        group, script = SecurityGroup(self.site).left(), self._script()
        if group is None or script is None:
            return None
        settings = self.site.settings
        profile = role_name(self.site.cluster, self.site.aws.region, self.role)
        return {
            "InstanceType": settings.machine_type(self.role),
            "IamInstanceProfile": {"Name": profile},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "UserData": base64.b64encode(script.encode()).decode(),
            **({"KeyName": settings.key_name} if settings.key_name else {}),
            **({"ImageId": settings.image} if settings.image else {}),
            **({"InstanceMarketOptions": _SPOT} if settings.machines.spot and self.role == WORKER else {}),
            **_placed(group, settings.subnet),
        }

    def _script(self) -> str | None:
        """Returns the start-up script of its instances; None while the master that workers join does not exist."""
        environment = self.site.settings.environment
        if self.role == MASTER:
            return _fitting(master_script(environment), environment)
        master = find_master(self)
        if master is None or master.host is None:
            return None
        cores = self.site.settings.machines.nodes_per_worker
        return _fitting(worker_script(environment, master.host, cores), environment)

    def _image(self) -> dict[str, Any]:
        """Returns the image, and its root volume with the wanted size."""
        about = f"image of {self.label}"
        image = self.site.settings.image or self._image_of_parameter()
        found = self.site.aws.items("ec2", "describe_images", about, "Images", ImageIds=[image])
        if not found:
            raise UserError(f"{about}: {image} is not in region {self.site.aws.region}; set image")
        disk = {"VolumeSize": self.site.settings.volume_gb, "VolumeType": "gp3", "Encrypted": True}
        mapping = {"DeviceName": found[0]["RootDeviceName"], "Ebs": disk | {"DeleteOnTermination": True}}
        return {"ImageId": image, "BlockDeviceMappings": [mapping]}

    def _image_of_parameter(self) -> str:
        parameter = self.site.settings.image_parameter
        answer = self.site.aws.call("ssm", "get_parameter", f"image_parameter {parameter}", Name=parameter)
        return str(answer["Parameter"]["Value"])


def digest(content: dict[str, Any]) -> str:
    """Returns a digest, equal for equal content.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})
    True
    """
    return f"seep {hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]}"


def _placed(group: str, subnet: str | None) -> dict[str, Any]:
    """Returns groups and subnet; a template takes a subnet only in a network interface, which then has the groups."""
    if subnet is None:
        return {"SecurityGroupIds": [group]}
    return {"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group]}]}


def _fitting(script: str, environment: str) -> str:
    size = len(script.encode())
    if size > _SCRIPT_LIMIT:
        raise UserError(
            f"environment: with {environment} the start-up script has {size:,} bytes, and EC2 takes {_SCRIPT_LIMIT:,}; "
            "pin less, or name the https:// URL of the file"
        )
    return script
