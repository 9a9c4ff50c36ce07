"""Messages for Google Cloud's refusals: which call, for what, why, and what to do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from importlib import import_module
from typing import Any, NamedTuple

from primitives.errors import SeepError, UserError
from vmpool.provider import ProviderError


class Missing(UserError):
    """The requested resource does not exist."""


class GcpRefusal(NamedTuple):
    """The API's answer when it refuses a request."""

    status: int  #: HTTP status
    reason: str  #: code, such as QUOTA_EXCEEDED
    said: str


class Advice(NamedTuple):
    """Advice on a refusal."""

    text: str
    again: bool = False  #: whether it may pass by itself
    asked: bool = False  #: whether the request is wrong


#: Advice by reason, without case and underscores; the reason's beginning is enough.
_BY_REASON = {
    "quotaexceeded": Advice("ask for fewer or smaller VMs, or for more quota, in the console under IAM, Quotas"),
    "zoneresourcepoolexhausted": Advice("the zone has none left: try later, or another zone or type", again=True),
    "ratelimitexceeded": Advice("too many calls: try later", again=True),
    "resourcenotready": Advice("another change of it is under way: try later", again=True),
    "resourceinuse": Advice("end what uses it first"),
    "accessnotconfigured": Advice("enable the API: gcloud services enable compute.googleapis.com"),
}
#: Reasons and statuses that pass with time.
_BRIEF = ("ratelimitexceeded", "resourcenotready")
_BUSY = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
#: Advice by HTTP status, for all other reasons.
_BY_STATUS = {
    HTTPStatus.BAD_REQUEST: Advice("correct the settings", asked=True),
    HTTPStatus.UNAUTHORIZED: Advice("sign in again: gcloud auth application-default login"),
    HTTPStatus.FORBIDDEN: Advice("give the account that permission; docs/deploy-gcp.md says who needs which"),
    HTTPStatus.NOT_FOUND: Advice("correct the settings, or run `up` first", asked=True),
    HTTPStatus.CONFLICT: Advice("run the command again, or choose another cluster name", asked=True),
}
_LATER = Advice("try later", again=True)
_NO_CREDENTIALS = (
    "no credentials for Google Cloud were found; sign in with `gcloud auth application-default login`, "
    "or name a key file in GOOGLE_APPLICATION_CREDENTIALS"
)


@contextmanager
def in_words(doing: str) -> Iterator[None]:
    """Converts errors of the client library to ours, which begin with what was being done."""
    try:
        yield
    except Exception as reason:
        found = _known(doing, reason)
        if found is None:
            raise
        raise found from reason


def refused(doing: str, refusal: GcpRefusal) -> SeepError:
    """Returns UserError if the request is wrong, Missing if the resource does not exist, else ProviderError."""
    advice = _advice(refusal)
    message = f"{doing}: {refusal.said.rstrip('.')}; {advice.text}"
    if advice.asked:
        return (Missing if refusal.status == HTTPStatus.NOT_FOUND else UserError)(message)
    return ProviderError(message, again=advice.again)


def is_transient(reason: Exception) -> bool:
    """Whether a retry may succeed soon: the network failed, or the API is busy."""
    if not _is_refusal(reason):
        return _is_of_network(reason)
    refusal = _refusal(reason)
    return refusal.status in _BUSY or _key(refusal).startswith(_BRIEF)


def _advice(refusal: GcpRefusal) -> Advice:
    by_reason = (advice for start, advice in _BY_REASON.items() if _key(refusal).startswith(start))
    by_status = (advice for status, advice in _BY_STATUS.items() if status == refusal.status)
    return next(itertools.chain(by_reason, by_status), _LATER)


def _key(refusal: GcpRefusal) -> str:
    """Returns the reason in the form of our tables; answers and operations write it differently."""
    return refusal.reason.replace("_", "").lower()


def _known(doing: str, reason: BaseException) -> SeepError | None:
    """Returns our error; None if neither the cloud nor the network caused it."""
    api, auth = import_module("google.api_core.exceptions"), import_module("google.auth.exceptions")
    if isinstance(reason, api.RetryError) and reason.cause:
        return _known(doing, reason.cause)
    if isinstance(reason, auth.DefaultCredentialsError):
        return ProviderError(f"{doing}: {_NO_CREDENTIALS}", again=False)
    if _is_of_network(reason):
        return ProviderError(f"{doing}: cannot reach Google Cloud: {reason}; check the network and `endpoint`")
    if isinstance(reason, auth.GoogleAuthError):
        return refused(doing, GcpRefusal(HTTPStatus.UNAUTHORIZED, "", str(reason)))
    return refused(doing, _refusal(reason)) if _is_refusal(reason) else None


def _is_of_network(reason: BaseException) -> bool:
    transport = import_module("google.auth.exceptions").TransportError
    requests = import_module("requests.exceptions")
    return isinstance(reason, (transport, requests.ConnectionError, requests.Timeout))


def _is_refusal(reason: BaseException) -> bool:
    call_error = import_module("google.api_core.exceptions").GoogleAPICallError
    return isinstance(reason, call_error) and reason.code is not None


def _refusal(reason: Any) -> GcpRefusal:
    """Returns the refusal in an error of the client library: the first in its list, which is the most precise."""
    first = dict(reason.errors[0]) if reason.errors else {}
    return GcpRefusal(int(reason.code), first.get("reason", ""), first.get("message", reason.message))
