"""Notices of Google Cloud that a spot VM is about to be taken away, by the metadata server that each VM has."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException

#: From the notice until the VM is switched off.
NOTICE = 30.0
_TIMEOUT = 1.0


class GceNotices:
    """Asks about the VM that it runs on."""

    def __init__(self, url: str = "http://metadata.google.internal") -> None:
        self._request = urllib.request.Request(
            f"{url}/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"}
        )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is never behind a proxy

    def poll(self) -> float | None:
        """Seconds until the VM goes away, at least; None if nothing says so, or nobody answers."""
        try:
            with self._opener.open(self._request, timeout=_TIMEOUT) as answer:
                return NOTICE if answer.read(16).strip() == b"TRUE" else None
        except (OSError, HTTPException):
            return None
