"""What both clouds' cluster files have in common."""

from __future__ import annotations

import pytest

from formats.settings import checked
from primitives.errors import UserError
from seep.deploy.ec2.settings import Ec2Settings
from seep.deploy.gcp.settings import GcpSettings
from seep.deploy.settings import ClusterSettings

CLOUDS = pytest.mark.parametrize(
    ("model", "needed"), [(Ec2Settings, {}), (GcpSettings, {"project": "streams-1"})], ids=["ec2", "gcp"]
)


@CLOUDS
@pytest.mark.parametrize(
    ("admin", "words"),
    [
        ("0.0.0.0/0", "that is everybody; name the addresses you come from"),
        ("::/0", "that is everybody"),
        ("here", "does not appear to be"),
        ("203.0.113.7/24", "host bits set"),
    ],
)
def test_an_admin_range_must_be_one_and_not_everybody(
    model: type[ClusterSettings], needed: dict[str, str], admin: str, words: str
) -> None:
    with pytest.raises(UserError, match=f"file: admin is .*{words}"):
        checked(model, needed | {"admin": admin}, "file")


@CLOUDS
@pytest.mark.parametrize(
    ("admin", "meant"), [(None, None), ("203.0.113.7", "203.0.113.7/32"), ("2001:db8::/64", "2001:db8::/64")]
)
def test_an_address_alone_is_a_range_too_and_none_is_nobody(
    model: type[ClusterSettings], needed: dict[str, str], admin: str | None, meant: str | None
) -> None:
    assert checked(model, needed | {"admin": admin}, "file").admin == meant
