"""Servers that the tests of deployment share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.ec2.models import amis
from moto.server import ThreadedMotoServer

from tests.deploy.ec2_kit import reset


@pytest.fixture(scope="session")
def aws_server() -> Iterator[str]:
    """A real server for Amazon's interfaces, on loopback."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amis, "AMIS", amis.AMIS[:2])  # of 1,291, which it makes anew after every reset
        patch.setenv("MOTO_AMIS_PATH", "those two")  # it only looks whether this is set, and leaves out 2,000 others then
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Nothing of this machine's own settings reaches the library."""
    for name in ("PROFILE", "SESSION_TOKEN", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def credentials(without_credentials: pytest.MonkeyPatch) -> str:
    """Some that any server of ours takes."""
    without_credentials.setenv("AWS_ACCESS_KEY_ID", "test")
    without_credentials.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return "test"


@pytest.fixture
def endpoint(aws_server: str, credentials: str) -> str:
    """The server, empty, and somebody to call it as."""
    assert credentials
    reset(aws_server)
    return aws_server


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library repeats calls without a pause."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
