"""Asks the cloud whether this process's VM is about to be taken away, as VMs on spare capacity are."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Protocol

from vmpool.settings import Metadata, VMSettings

_TIMEOUT = 1.0
_INSTANCE_ACTION = "/latest/meta-data/spot/instance-action"
#: Seconds for which a token for the metadata service is valid.
_TOKEN_LIFE = 21_600
#: Seconds from the notice of Google Cloud until the VM is switched off.
NOTICE = 30.0


class Notices(Protocol):
    """The source of notices that a VM will be taken away."""

    def poll(self) -> float | None:
        """Returns the seconds until this VM is taken away; None without a notice."""
        ...


class Ec2Notices:
    """The instance metadata service of EC2, in its second version: first a token, then the question.

    A rebalance recommendation does not count as a notice: it comes early, often, and mostly without consequences.
    """

    def __init__(self, url: str = "http://169.254.169.254", now: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._url = url.rstrip("/")
        self._now = now
        self._token: str | None = None

    def poll(self) -> float | None:
        """Returns the seconds; None also if the service cannot be reached, or its answer cannot be read."""
        try:
            text = self._ask()
            return None if text is None else self._seconds_until(text)
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return None

    def _ask(self) -> str | None:
        """Returns the notice, or None."""
        if self._token is None:
            life = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE)}
            self._token = _answer(self._request("PUT", "/latest/api/token", life))
        try:
            return _answer(self._request("GET", _INSTANCE_ACTION, {"X-aws-ec2-metadata-token": self._token}))
        except urllib.error.HTTPError as reason:
            reason.close()
            if reason.code == 401:  # the token has expired; the next poll requests a new one
                self._token = None
            return None

    def _request(self, method: str, path: str, headers: dict[str, str]) -> urllib.request.Request:
        return urllib.request.Request(self._url + path, headers=headers, method=method)

    def _seconds_until(self, notice: str) -> float:
        at = datetime.fromisoformat(json.loads(notice)["time"])
        return max(0.0, (at - self._now()).total_seconds())


def watch(notices: Notices, every: float, on_notice: Callable[[float], None], stop: threading.Event) -> None:
    """Polls until there is a notice, which it passes on once, or until it is stopped."""
    while not stop.is_set():
        left = notices.poll()
        if left is not None:
            on_notice(left)
            return
        stop.wait(every)


def _answer(request: urllib.request.Request) -> str:
    """Requests directly, because a proxy does not have this machine's metadata."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=_TIMEOUT) as answer:
        return str(answer.read().decode("utf-8"))


class GceNotices:
    """The metadata server of Google Cloud."""

    def __init__(self, url: str = "http://metadata.google.internal") -> None:
        self._request = urllib.request.Request(
            f"{url}/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"}
        )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is never behind a proxy

    def poll(self) -> float | None:
        """Returns the least number of seconds until the VM is taken away; None without a notice or an answer."""
        try:
            with self._opener.open(self._request, timeout=_TIMEOUT) as answer:
                return NOTICE if answer.read(16).strip() == b"TRUE" else None
        except (OSError, HTTPException):
            return None


def notices_of(vm: VMSettings) -> Notices | None:
    """Returns the metadata service that the settings name; None if none is named.

    >>> notices_of(VMSettings()) is None
    True
    """
    kinds: dict[Metadata, type[Ec2Notices] | type[GceNotices]] = {Metadata.EC2: Ec2Notices, Metadata.GCE: GceNotices}
    kind = kinds.get(vm.notices)
    if kind is None:
        return None
    return kind() if vm.notices_url is None else kind(vm.notices_url)
