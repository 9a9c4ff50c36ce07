"""What the provider `standalone` refuses, and how it fails. With a query: `tests/runtime/test_standalone.py`."""

from __future__ import annotations

import pytest

from primitives.errors import UserError
from vmpool.provider import ProviderError
from vmpool.standalone import StandaloneProvider, from_settings


def test_a_master_of_another_kind_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"the master is local\[4\].*spark://.*or choose provider spark"):
        from_settings({}, run="r", master="local[4]", nodes_per_vm=1)


def test_an_unknown_setting_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"pool\.settings: cores is unknown; known are memory, first_host, timeout"):
        from_settings({"cores": 4}, run="r", master="spark://127.0.0.1:7077", nodes_per_vm=1)


def test_a_worker_that_does_not_start_is_told_with_what_it_said_last_and_leaves_nothing() -> None:
    provider = StandaloneProvider("spark://no-such-host.invalid", cores=1)
    try:
        with pytest.raises(ProviderError, match=r"(?s)daemon at 127\.0\.0\.2 ended.*Invalid master URL") as failed:
            provider.start("vm-1")
        assert failed.value.again
        assert provider.pids() == {}
    finally:
        provider.close()


def test_a_provider_that_is_closed_starts_nothing() -> None:
    provider = StandaloneProvider("spark://127.0.0.1:1", cores=1)
    provider.close()
    with pytest.raises(ProviderError, match="not needed any more") as refused:
        provider.start("vm-1")
    assert not refused.value.again
