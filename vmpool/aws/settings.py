"""Common settings of pool and deployment: the endpoints of Amazon's interfaces, and the credentials' profile."""

from __future__ import annotations

from pydantic import Field

from formats.settings import Seconds, Section

#: Names of clusters: short enough for every name that contains them.
CLUSTER_NAME = r"^[a-z][a-z0-9-]{0,30}$"


class AwsAccess(Section):
    """Region, credentials, and patience."""

    region: str | None = Field(
        None, pattern=r"^[a-z]{2,3}(-[a-z]+)+-\d$", description="The region, such as eu-west-1; as AWS_REGION if none."
    )
    profile: str | None = Field(None, description="Profile in ~/.aws with the credentials; the default ones if none.")
    endpoint_url: str | None = Field(
        None, pattern=r"^https?://", description="Another server for all calls: a compatible cloud, or a test."
    )
    patience: Seconds = Field(300.0, description="Most time to wait for an instance to run or to be gone.")
    poll: Seconds = Field(2.0, description="Time between two looks while waiting.")
