"""Failures: the message and exit code of a command that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from primitives.errors import EnvironmentFault, SeepError, UserError

#: The request is wrong, or a result is.
USER = 1
#: The environment failed: Java, Spark, the network, a disk.
ENVIRONMENT = 2
#: A bug.
INTERNAL = 3
#: The exit code that shells use for a program ended by Ctrl-C.
INTERRUPTED = 130


@contextmanager
def told_in_one_line(*, verbose: bool) -> Iterator[None]:
    """Turns errors of the project into a line on stderr and an exit code; prints the trace only if `verbose`."""
    try:
        yield
    except SeepError as failure:
        if verbose:
            Console(stderr=True).print_exception()
        _say(f"{_prefix(failure)}: {failure}")
        raise typer.Exit(_code(failure)) from None
    except KeyboardInterrupt:
        _say("stopped")
        raise typer.Exit(INTERRUPTED) from None


def _say(line: str) -> None:
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)


def _code(failure: SeepError) -> int:
    if isinstance(failure, UserError):
        return USER
    return ENVIRONMENT if isinstance(failure, EnvironmentFault) else INTERNAL


def _prefix(failure: SeepError) -> str:
    return {USER: "error", ENVIRONMENT: "environment", INTERNAL: "internal error"}[_code(failure)]
