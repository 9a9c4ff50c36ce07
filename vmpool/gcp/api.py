"""Calls Google's Compute API: find, list, make, remove. Each call waits for its end, and explains its failure."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from primitives.errors import UserError, install_command
from vmpool.gcp.faults import GcpRefusal, Missing, in_words, is_transient, refused
from vmpool.gcp.names import CORES, STATE
from vmpool.gcp.settings import GceAccess
from vmpool.provider import ProviderError

#: Seconds to wait for an answer; a wait for an operation is answered after two minutes at the latest.
_ANSWER = 30.0
_ANSWER_OF_WAIT = 150.0
_FIRST_PAUSE = 0.1


class ResourceKind(NamedTuple):
    """A kind of resource, and its name in the client library."""

    noun: str
    client: str
    message: str
    field: str
    is_zonal: bool = False


INSTANCE = ResourceKind("instance", "InstancesClient", "Instance", "instance", is_zonal=True)
TEMPLATE = ResourceKind("instance template", "InstanceTemplatesClient", "InstanceTemplate", "instance_template")
FIREWALL = ResourceKind("firewall rule", "FirewallsClient", "Firewall", "firewall")

#: States of an instance on which nothing runs, or soon nothing will.
_STOPPED = {"STOPPED", "SUSPENDED", "TERMINATED"}
_STOPPING = {"PENDING_STOP", "STOPPING", "SUSPENDING"}


def is_stopped(instance: Any) -> bool:
    """Whether the instance has stopped and can be started again."""
    return instance.status in _STOPPED


def is_ending(instance: Any) -> bool:
    """Whether the instance has stopped or is about to."""
    return instance.status in _STOPPED | _STOPPING


def internal_address(instance: Any) -> str:
    """Returns the address inside its network."""
    return str(instance.network_interfaces[0].network_i_p)


def cores_of(template: Any) -> int:
    """Returns the number of Spark cores of each worker made from the template."""
    return next((int(item.value) for item in template.properties.metadata.items if item.key == CORES), 1)


class Compute:
    """The Compute API for one project and zone; several threads may use it.

    Calls that fail because of the network or a busy API are repeated for `patience`. Each change has its own id, by
    which the API recognises a repeated one.
    """

    def __init__(self, access: GceAccess) -> None:
        self._access = access
        self._library = _library()
        self._clients = threading.local()
        with in_words("sign in"):
            self._credentials = _credentials(access.endpoint)

    def check(self) -> None:
        """Raises UserError unless project and zone exist."""
        project, zone = self._access.project, self._access.zone
        try:
            self._call(f"look up zone {zone}", "ZonesClient", "get", {"zone": zone})
        except Missing as reason:
            raise UserError(f"project {project!r} has no zone {zone!r}, or is not there itself: {reason}") from reason

    def find(self, kind: ResourceKind, name: str) -> Any | None:
        """Returns the present state of a resource; None if there is none of that name."""
        try:
            return self._call(f"look up {kind.noun} {name}", kind.client, "get", self._place(kind, name))
        except Missing:
            return None

    def instances(self, labels: Mapping[str, str]) -> list[Any]:
        """Returns all instances with these labels."""
        wanted = " AND ".join(f"(labels.{key} = {value})" for key, value in labels.items())
        with in_words("list instances"):  # pages are fetched one by one
            return list(
                self._call("list instances", INSTANCE.client, "list", self._place(INSTANCE) | {"filter": wanted})
            )

    def insert(self, kind: ResourceKind, body: Mapping[str, Any], **more: str) -> str:
        """Creates a resource from its JSON, as the API documents it, and returns its id."""
        request = self._place(kind) | {f"{kind.field}_resource": self.message(kind, body)} | more
        return str(self._change(f"create {kind.noun} {body['name']}", kind, "insert_unary", request).target_id)

    def message(self, kind: ResourceKind, body: Mapping[str, Any]) -> Any:
        """Converts JSON to the object that `find` would return."""
        return getattr(self._library, kind.message).from_json(json.dumps(body))

    def delete(self, kind: ResourceKind, name: str, *, wait: bool = True) -> None:
        """Removes a resource; a missing one is no error. Without `wait`, returns before it is removed."""
        doing = f"delete {kind.noun} {name}"
        try:
            operation = self._begin(doing, kind, "delete_unary", self._place(kind, name))
            if wait:
                self._done(doing, operation, kind)
        except Missing:
            return

    def start(self, name: str) -> None:
        """Starts a stopped instance again."""
        self._change(f"start instance {name}", INSTANCE, "start_unary", self._place(INSTANCE, name))

    def state(self, name: str) -> str | None:
        """Returns the last message of an instance's start-up script; None if there is none yet."""
        request = self._place(INSTANCE, name) | {"query_path": STATE}
        try:
            said = self._call(f"ask instance {name}", INSTANCE.client, "get_guest_attributes", request)
        except Missing:
            return None
        return next((str(item.value) for item in said.query_value.items), None)

    def _change(self, doing: str, kind: ResourceKind, method: str, request: dict[str, Any]) -> Any:
        """Makes a change and returns its finished operation."""
        return self._done(doing, self._begin(doing, kind, method, request), kind)

    def _begin(self, doing: str, kind: ResourceKind, method: str, request: dict[str, Any]) -> Any:
        return self._call(doing, kind.client, method, request | {"request_id": str(uuid.uuid4())})

    def _done(self, doing: str, operation: Any, kind: ResourceKind) -> Any:
        """Waits for an operation; the API answers when it is done, or after two minutes."""
        client = "ZoneOperationsClient" if kind.is_zonal else "GlobalOperationsClient"
        request = self._place(kind) | {"operation": operation.name}
        deadline = time.monotonic() + self._access.timeout
        while operation.status != self._library.Operation.Status.DONE:
            if time.monotonic() > deadline:
                raise ProviderError(f"{doing}: not done within {self._access.timeout:g} s; run the command again")
            operation = self._call(doing, client, "wait", request, _ANSWER_OF_WAIT)
        for error in operation.error.errors:
            raise refused(doing, GcpRefusal(operation.http_error_status_code, error.code, error.message))
        return operation

    def _call(self, doing: str, client: str, method: str, request: dict[str, Any], timeout: float = _ANSWER) -> Any:
        """Makes one call, repeated while the error may pass and `patience` lasts."""
        retry = import_module("google.api_core.retry").Retry(
            is_transient, initial=_FIRST_PAUSE, maximum=10.0, timeout=self._access.patience
        )
        with in_words(f"{doing} in project {self._access.project}"):
            function = getattr(self._client(client), method)
            return function(request={"project": self._access.project} | request, retry=retry, timeout=timeout)

    def _client(self, name: str) -> Any:
        """Returns this thread's client, because HTTP sessions must not be shared."""
        if not hasattr(self._clients, name):
            options = {"api_endpoint": self._access.endpoint} if self._access.endpoint else None
            made = getattr(self._library, name)(credentials=self._credentials, client_options=options)
            setattr(self._clients, name, made)
        return getattr(self._clients, name)

    def _place(self, kind: ResourceKind, name: str | None = None) -> dict[str, Any]:
        """Returns the part of a request with the place and name of a resource."""
        zone = {"zone": self._access.zone} if kind.is_zonal else {}
        return zone | ({kind.field: name} if name else {})


def _library() -> Any:
    """Imports the client library when it is needed, as that takes two seconds."""
    try:
        return import_module("google.cloud.compute_v1")
    except ImportError as reason:
        raise UserError(f"Google Cloud needs google-cloud-compute: {install_command('cloud')}") from reason


def _credentials(endpoint: str | None) -> Any:
    """Returns the user's credentials; none over a connection that others could read."""
    if endpoint and endpoint.startswith("http://"):
        return import_module("google.auth.credentials").AnonymousCredentials()
    return import_module("google.auth").default(scopes=["https://www.googleapis.com/auth/compute"])[0]
