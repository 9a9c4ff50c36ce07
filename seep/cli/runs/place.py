"""The place of a run that a command is for: on this machine by its name, or behind the address of its dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from primitives.errors import UserError

if TYPE_CHECKING:
    from seep.running.dashboard_client import DashboardClient
    from seep.running.run_client import RunClient

RunName = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="A run's id, or its query's name; may be left out with --url.", show_default=False
    ),
]
OperatorName = Annotated[str | None, typer.Argument(metavar="OPERATOR", help="The operator.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Where the run is, if it is not one of this user on this machine."""

    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="SEEP_URL",
            help="The address of the run's dashboard, http(s)://host:port; then RUN may be left out.",
            show_default=False,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file with the token for --url; else SEEP_TOKEN has it.", show_default=False
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificates (PEM) to trust with --url https://…, not the system's.",
            show_default=False,
        ),
    ] = None
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Send the token over HTTP to another machine, unencrypted.")
    ] = False

    def opened(self, *names: str | None, wants: Sequence[str] = (), more: bool = False) -> OpenedRun:
        """Returns a client of the run that the first name is of, and the other names.

        `wants` says what the others are; with `more`, further ones may follow. Raises an error of usage if there are
        too few.
        """
        given = [name for name in names if name is not None]
        if self.url is None:
            _check_count(given, ["RUN", *wants])
            return OpenedRun(self._on_this_machine(given[0]), given[1:])
        client = self._behind(self.url)
        if _has_run(client, given, len(wants), more):
            _check_is(client, self.url, given.pop(0))
        _check_count(given, wants)
        return OpenedRun(client, given)

    def _on_this_machine(self, name: str) -> RunClient:
        from seep.running.remote_control import find

        for option, value in {"--token-file": self.token_file, "--ca": self.ca}.items():
            if value is not None:
                raise UserError(f"{option} is for --url; a run of yours on this machine needs none")
        return find(name)

    def _behind(self, url: str) -> DashboardClient:
        from seep.dashboard.tokens import OPERATOR_VARIABLE, token_of
        from seep.running.dashboard_client import DashboardAddress, DashboardClient

        token = token_of(self.token_file, "--token-file", OPERATOR_VARIABLE)
        return DashboardClient(DashboardAddress(url, token, self.ca, self.insecure_http))


class OpenedRun(NamedTuple):
    """A client of the run that a command is for, and the names that came after it."""

    client: RunClient
    names: list[str]


def _has_run(client: DashboardClient, given: Sequence[str], wanted: int, is_open: bool) -> bool:
    """Whether the first name is that of the run, which may be left out, as the address says it."""
    if not is_open or len(given) <= wanted:
        return len(given) > wanted
    is_run = given[0] in (client.id, client.query)
    return is_run and (len(given) == 1 or given[1] in client.run.get("operators", {}))


def _check_is(client: DashboardClient, url: str, name: str) -> None:
    if name not in (client.id, client.query):
        raise UserError(f"the run at {url} is {client.id} of {client.query}, and not {name!r}; RUN may be left out")


def _check_count(given: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := wanted[len(given) :]:
        raise typer.BadParameter(f"{' and '.join(missing)} must be given", param_hint=wanted)
