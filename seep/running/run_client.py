"""Clients of a run: those who send it requests, over the channels of the run or over HTTP to its dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

#: Seconds that a run may take to answer; and for requests that store or read state, which take longer.
_USUAL, _LONGER = 30.0, {"savepoint": 150.0, "stop": 150.0, "state": 60.0, "sql": 60.0, "look": 60.0}


class RunClient(Protocol):
    """Sends requests to one run."""

    @property
    def id(self) -> str: ...

    @property
    def query(self) -> str: ...

    def tell(self, do: str, /, **fields: Any) -> Mapping[str, Any]:
        """Sends a request with its fields; returns the answer.

        Raises UserError if the run refuses it, EnvironmentFault if the run cannot be reached or takes too long.
        """
        ...

    def has_ended(self) -> bool:
        """Whether its driver is gone, after it could not be reached."""
        ...


def time_limit(do: str, fields: Mapping[str, Any]) -> float:
    """Returns the most seconds that a request with these fields may take.

    >>> time_limit("status", {"wait": 5.0}), time_limit("savepoint", {})
    (35.0, 150.0)
    """
    return _LONGER.get(do, _USUAL) + float(fields.get("wait") or 0.0)
