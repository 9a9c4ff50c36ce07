"""Remote control: another process of the same user finds a run and sends it commands, such as to take a savepoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
from seep.channels.links import Link, NoLinkEvents
from seep.channels.port import Address
from seep.channels.process import ProcessId
from seep.channels.security import Security
from seep.dashboard.requests import RunIsOver
from seep.protocol.view import MANAGER
from seep.running.run_client import time_limit

#: What is raised for a refusal, by the name of the error that the run raised.
_REFUSALS: Mapping[str, type[SeepError]] = {each.__name__: each for each in (UserError, EnvironmentFault, RunIsOver)}


@dataclass(frozen=True, slots=True)
class RunListing:
    """The entry of a run in the list of runs: a file with its address and secret, which only its user can read."""

    id: str
    query: str
    process: ProcessId
    address: Address
    security: Security

    def enlist(self) -> None:
        directory = home()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps(self._to_json()).encode()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(content)

    def delist(self) -> None:
        self._path.unlink(missing_ok=True)

    def tell(self, do: str, /, **fields: Any) -> Mapping[str, Any]:
        """Sends the run a request with the fields that are given, and returns its answer.

        Raises UserError or EnvironmentFault with its refusal.
        """
        return self.answer({"do": do} | {name: value for name, value in fields.items() if value is not None})

    def has_ended(self) -> bool:
        """Whether its driver is gone: then it is not in the list any more."""
        return self.id not in {each.id for each in listed()}

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers a request by asking the run; raises UserError or EnvironmentFault with its refusal."""
        link = Link("control", MANAGER, self.address, self.security, NoLinkEvents())
        try:
            answer: Mapping[str, Any] = link.call("control", dict(body), time_limit(str(body.get("do")), body))
        finally:
            link.close()
        if "refused" in answer:
            raise _REFUSALS.get(answer["kind"], InternalError)(f"run {self.id}: {answer['refused']}")
        return answer

    @property
    def _path(self) -> Path:
        return home() / f"{self.id}.json"

    def _to_json(self) -> dict[str, Any]:
        texts = {"certificate": self.security.certificate, "key": self.security.key}
        return {
            "id": self.id,
            "query": self.query,
            "process": [self.process.place, self.process.pid, self.process.started],
            "address": list(self.address),
            "token": self.security.token,
            "name": self.security.name,
        } | {name: text.decode() if text else None for name, text in texts.items()}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RunListing:
        pem = {name: data[name].encode() if data[name] else None for name in ("certificate", "key")}
        security = Security(data["token"], pem["certificate"], pem["key"], data["name"])
        return cls(data["id"], data["query"], ProcessId(*data["process"]), Address(*data["address"]), security)


def home() -> Path:
    """Returns the directory in which this user's runs are listed."""
    return Path(os.environ.get("SEEP_HOME", "~/.seep")).expanduser() / "runs"


def listed() -> list[RunListing]:
    """Returns the runs of this user on this machine, sorted by id; removes entries whose driver is gone."""
    found = []
    for path in sorted(home().glob("*.json")) if home().is_dir() else []:
        with suppress(OSError, ValueError, KeyError, TypeError):
            run = RunListing.of(json.loads(path.read_bytes()))
            if run.process.alive():
                found.append(run)
            else:
                run.delist()
    return found


def find(name: str) -> RunListing:
    """Returns the run with that id, or the only run of a query of that name; a UserError lists the runs."""
    runs = listed()
    found = [run for run in runs if name in (run.id, run.query)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{run.id} ({run.query})" for run in runs) or "none"
    raise UserError(f"{'several runs are' if found else 'no run is'} called {name!r}; running now: {there}")
