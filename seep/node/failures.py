"""Failures: conversion of an error that stops a run, from the thread where it happens to the user."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
from seep.operators.errors import UserCodeFailed
from seep.protocol.view import Incarnation

_KINDS: dict[str, type[SeepError]] = {"user": UserError, "environment": EnvironmentFault, "internal": InternalError}


def failure_to_json(node: str, instance: Incarnation | None, epoch: int, reason: BaseException) -> dict[str, Any]:
    """Returns the failure as plain data."""
    where = f"{instance.instance} on node {node}" if instance else f"node {node}"
    if isinstance(reason, UserCodeFailed):
        reason.instance = where
        return {"user code": reason.to_json(), "text": str(reason)}
    kind = next((name for name, of in _KINDS.items() if isinstance(reason, of)), "internal")
    text = f"{where}, epoch {epoch}: {reason}" if kind != "internal" else _with_trace(where, epoch, reason)
    return {"kind": kind, "text": text}


def is_internal(failure: Mapping[str, Any]) -> bool:
    """Whether it is a bug of seep, and not an error of the user or the environment."""
    return failure.get("kind") == "internal"


def failure_from_json(failure: Mapping[str, Any]) -> SeepError:
    """Returns the failure as an exception to raise."""
    if "user code" in failure:
        return UserCodeFailed.from_json(failure["user code"])
    return _KINDS[failure["kind"]](failure["text"])


def manager_failure(reason: BaseException) -> SeepError:
    """Returns the failure of the manager itself as an exception to raise."""
    if isinstance(reason, SeepError):
        return reason
    trace = "".join(traceback.format_exception(reason))
    return InternalError(f"the manager failed; please report it with this trace:\n{trace}")


def _with_trace(where: str, epoch: int, reason: BaseException) -> str:
    """Returns the text of an internal error with its trace, for the bug report."""
    trace = "".join(traceback.format_exception(reason))
    return f"internal error of seep in {where}, epoch {epoch}; please report it with this trace:\n{trace}"
