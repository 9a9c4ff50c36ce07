"""Cluster files: each has one section, named after the provider."""

from __future__ import annotations

from pydantic import Field

from formats.settings import Section
from seep.deploy.ec2.settings import Ec2Settings
from seep.deploy.gcp.settings import GcpSettings


class Ec2File(Section):
    """The file of `seep deploy ec2 up --config FILE`."""

    ec2: Ec2Settings = Field(description="The cluster, in Amazon EC2.")


class GcpFile(Section):
    """The file of `seep deploy gcp up --config FILE`."""

    gcp: GcpSettings = Field(description="The cluster, in Google Cloud.")
