"""Servers that the tests of deployment share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from botocore.loaders import create_loader
from moto import backends
from moto.ec2.models import amis
from moto.server import ThreadedMotoServer

from tests.deploy.ec2_kit import cluster, reset


@pytest.fixture(scope="session", autouse=True)
def _models_are_read_once() -> Iterator[None]:
    """The library's descriptions of services, which every session of it would read and parse anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(create_loader))
        yield


@pytest.fixture(scope="session")
def aws_server() -> Iterator[str]:
    """A real server for Amazon's interfaces, on loopback."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amis, "AMIS", amis.AMIS[:2])  # of 1,291, which it makes anew after every reset
        patch.setenv("MOTO_AMIS_PATH", "those two")  # set at all, it keeps 2,000 others out
        names = tuple(backends.list_of_moto_modules())
        patch.setattr(backends, "list_of_moto_modules", lambda: names)  # or it reads a directory for every request
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


def forget_this_machine(patch: pytest.MonkeyPatch, directory: Path) -> None:
    """Nothing of this machine's own settings reaches the library."""
    for name in ("PROFILE", "SESSION_TOKEN", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        patch.delenv(f"AWS_{name}", raising=False)
    patch.setenv("AWS_CONFIG_FILE", str(directory / "no-config"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(directory / "no-credentials"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def be_somebody(patch: pytest.MonkeyPatch) -> None:
    """With credentials that any server of ours takes."""
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """As on a machine where nobody has logged in."""
    forget_this_machine(monkeypatch, tmp_path)
    return monkeypatch


@pytest.fixture
def credentials(without_credentials: pytest.MonkeyPatch) -> str:
    """Some that any server of ours takes."""
    be_somebody(without_credentials)
    return "test"


@pytest.fixture(scope="module")
def server_with_master(aws_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server with a cluster of a master only, shared by a module whose tests never ask for `endpoint`."""
    with pytest.MonkeyPatch.context() as patch:
        forget_this_machine(patch, tmp_path_factory.mktemp("nobody"))
        be_somebody(patch)
        reset(aws_server)
        cluster(aws_server, machines={"workers": 0}).up()
    return aws_server


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
