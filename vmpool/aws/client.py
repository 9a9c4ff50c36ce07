"""Calls Amazon's services with the same retries, paging, waiting and errors for all."""

from __future__ import annotations

import threading
import time
from functools import cached_property
from importlib import import_module
from typing import Any

from primitives.errors import EnvironmentFault, install_command
from vmpool.aws.errors import AwsFault, code_of, failures, in_words
from vmpool.aws.settings import AwsAccess


class Aws:
    """One account and region; several threads may use it.

    Every method takes what the call is `about`, for its errors. The library repeats throttled calls, with pauses that
    double. Client tokens keep a repeated call from taking effect twice.
    """

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def region(self) -> str:
        """The region of all calls."""
        return str(self._client("ec2", "the region").meta.region_name)

    def call(
        self, service: str, action: str, about: str, *, absent: tuple[str, ...] = (), retry: str = "", **parameters: Any
    ) -> Any:
        """Returns the answer to a call; None for the codes in `absent`.

        Errors that contain `retry` are tried again for a while.
        """
        client = self._client(service, about)
        deadline = time.monotonic() + self._access.patience
        while True:
            try:
                return getattr(client, action)(**parameters)
            except failures() as reason:
                if code_of(reason) in absent:
                    return None
                if not (retry and retry in str(reason)) or time.monotonic() > deadline:
                    raise in_words(reason, f"{service} {_camel(action)}", about) from reason
            time.sleep(self._access.poll)

    def items(self, service: str, action: str, about: str, key: str, **parameters: Any) -> list[Any]:
        """Returns the items under `key` on all pages of an answer."""
        pages = self._client(service, about).get_paginator(action).paginate(**parameters)
        try:
            return [item for page in pages for item in page[key]]
        except failures() as reason:
            raise in_words(reason, f"{service} {_camel(action)}", about) from reason

    def wait(self, waiter: str, about: str, **parameters: Any) -> None:
        """Returns when the library's waiter succeeds. Raises AwsFault if it cannot, or takes too long."""
        pace = {"Delay": self._access.poll, "MaxAttempts": max(1, round(self._access.patience / self._access.poll))}
        try:
            self._client("ec2", about).get_waiter(waiter).wait(**parameters, WaiterConfig=pace)
        except import_module("botocore.exceptions").WaiterError as reason:
            raise AwsFault(f"{about}: waited for {waiter.replace('_', ' ')}, but: {reason}") from reason

    def _client(self, service: str, about: str) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._connect(service, about)
            return self._clients[service]

    @cached_property
    def _session(self) -> Any:
        """Returns the session for all services, as each session loads the data of regions again."""
        boto3, _ = _library()
        return boto3.Session(profile_name=self._access.profile, region_name=self._access.region)

    def _connect(self, service: str, about: str) -> Any:
        _, config = _library()
        retries = {"mode": "standard", "max_attempts": 6}
        try:
            return self._session.client(
                service,
                endpoint_url=self._access.endpoint_url,
                config=config.Config(retries=retries, connect_timeout=5, read_timeout=30),
            )
        except failures() as reason:
            raise in_words(reason, f"connecting to {service}", about) from reason


def _library() -> tuple[Any, Any]:
    """Imports the library when it is needed, as it belongs to an extra."""
    try:
        return import_module("boto3"), import_module("botocore.config")
    except ImportError as reason:
        raise EnvironmentFault(f"EC2 needs boto3, which is not installed: {install_command('cloud')}") from reason


def _camel(action: str) -> str:
    """Returns an action's name in Amazon's documentation and policies.

    >>> _camel("run_instances")
    'RunInstances'
    """
    return action.title().replace("_", "")
