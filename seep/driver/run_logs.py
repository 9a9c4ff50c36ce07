"""The logs of a run: the driver's own lines, one for each event, and those that nodes send; kept for `seep logs`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from primitives.errors import UserError
from seep.channels.letters import LinesLogged
from seep.channels.security import Security
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.driver.node_register import NodeRecord
from seep.logs.event_lines import EventLines
from seep.logs.levels import LogLevel
from seep.logs.redaction import Redactor
from seep.logs.rings import CollectedLines, at_least, dropped_line
from seep.logs.run_log import LogContext, RunLog
from seep.logs.settings import LogSettings
from seep.logs.versions import versions

#: The most seconds that a request waits for new lines; less than the time-out of a call.
_WAIT = 10.0


class RunLogs(RunListener):
    """Writes the driver's log, and collects the newest lines of all processes of the run."""

    def __init__(
        self,
        process: ManagerProcess,
        settings: LogSettings,
        run: str,
        security: Security,
        secrets: Iterable[str] = (),
    ) -> None:
        """No line has one of the `secrets`."""
        self._process, self._run = process, run
        self.lines = CollectedLines()
        context = LogContext(self.lines.keep, settings.kept, Redactor.of(security.token, security.key, *secrets))
        self._log = RunLog("seep.driver", context, {"run": run})
        process.events.listen(EventLines(self._log.named("seep.record")))
        process.subscribe(self)

    def begins(self, master: str) -> None:
        where = f"{self._process.address.host}:{self._process.address.port}"
        self._log.info("run of %s begins: driver at %s, master %s, %s", self._name, where, master, versions())

    def named(self, name: str) -> RunLog:
        """Returns the driver's log under another name."""
        return self._log.named(name)

    def ends(self) -> None:
        """Logs the end of the run in this process, once its nodes are told to end."""
        self._log.info("run of %s ends: its nodes are stopped", self._name)
        self.lines.close()

    def answer(self, node: str | None, level: LogLevel, after: int, wait: float) -> Mapping[str, Any]:
        """Answers `seep logs`: the lines after a cursor, and whether there can be further ones."""
        if node is not None and node not in self._process.nodes:
            known = ", ".join(self._process.nodes) or "none yet"
            raise UserError(f"there has been no node {node!r}; there are, or were lately: {known}")
        page = self.lines.after(after, at_least(level.number, node), min(wait, _WAIT))
        return {
            "lines": [line.to_json() for line in page.lines],
            "next": page.cursor,
            "missed": page.missed,
            "last": page.is_last,
            "over": self.lines.is_closed and page.is_last,
        }

    @property
    def _name(self) -> str:
        return self._process.program.name

    # -- notices of the event loop ------------------------------------------------------------------------------------

    def registered(self, record: NodeRecord) -> None:
        where = (record.process.pid, record.address.host, record.address.port, record.order)
        self._log.info("node registered: process %d at %s:%d, order %s", *where, extra={"node": record.name})

    def link(self, node: str, state: str) -> None:
        """Logs the state of a link; whether a node is lost is decided later, and is an event."""
        level = logging.DEBUG if self._process.is_concluding else logging.INFO
        self._log.log(level, "link to %s %s", node, state, extra={"node": node})

    def logged(self, node: str, told: LinesLogged) -> None:
        if told.dropped:
            self.lines.keep(dropped_line(time.time(), told.dropped, {"run": self._run, "node": node}))
        for line in told.lines:
            self.lines.keep(line)

    def over(self) -> None:
        self.lines.close()


def node_settings(chosen: LogSettings, is_local: bool) -> LogSettings:
    """Returns the settings of nodes. On a cluster they always write lines, because Spark keeps their stderr in files.

    On this machine, their stderr is that of the program that launches the run.
    """
    return chosen if is_local or chosen.is_written else LogSettings(level=LogLevel.INFO)
