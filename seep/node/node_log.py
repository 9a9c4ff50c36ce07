"""The log of a node's process, and the lines of it that the driver has not got yet."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from seep.channels.letters import LinesLogged
from seep.channels.port import Address
from seep.channels.security import Security
from seep.logs.redaction import Redactor
from seep.logs.rings import OutgoingLines
from seep.logs.run_log import LogContext, RunLog
from seep.logs.settings import LogSettings
from seep.logs.versions import versions
from seep.protocol.messages import Persisted, PersistFailed
from seep.protocol.view import MANAGER, Incarnation


class NodeLog:
    """What a node logs: its beginning and end, its links, its part of checkpoints in storage, and failures."""

    def __init__(self, settings: LogSettings, run: str, node: str, security: Security) -> None:
        self._lines = OutgoingLines()
        self._redact = Redactor.of(security.token, security.key)
        context = LogContext(self._lines.keep, settings.kept, self._redact)
        self._log = RunLog("seep.node", context, {"run": run, "node": node})
        self._is_ending = False

    def take(self) -> LinesLogged | None:
        """Takes lines to send, as many as one letter may have."""
        lines, dropped = self._lines.take()
        return LinesLogged(lines, dropped) if lines else None

    def redacted(self, failure: dict[str, Any]) -> dict[str, Any]:
        """Returns a failure without the secrets that this process knows, because the driver logs it."""
        found: dict[str, Any] = self._redact.value(failure)
        return found

    def begins(self, address: Address) -> None:
        self._log.info("node begins: process %d at %s:%d, %s", os.getpid(), *address, versions())

    def told_to_end(self) -> None:
        self._is_ending = True
        self._log.info("told to end, because the run is over or this node is not needed any more")

    def fenced(self) -> None:
        self._is_ending = True
        self._log.warning("fenced: the driver has given this node up, and it ends")

    def alone(self, patience: float) -> None:
        self._log.error("the driver has not been reachable for %.1f s, so this node ends", patience)

    def ends(self) -> None:
        self._log.info("node ends after %.1f s of CPU time", time.process_time())

    def link_broken(self, peer: str, refused: bool) -> None:
        """Logs a broken link: to the driver as a warning; of a lost node, the driver decides and tells."""
        level = logging.WARNING if peer == MANAGER else logging.INFO
        level = logging.DEBUG if self._is_ending else level
        self._log.log(level, "link to %s %s", peer, "refused: no process listens there" if refused else "broken")

    def link_restored(self, peer: str) -> None:
        self._log.info("link to %s restored", peer)

    def written(self, said: Persisted | PersistFailed) -> None:
        """Logs what became of an instance's part of a checkpoint in storage."""
        where = {"instance": said.owner.instance}
        if isinstance(said, PersistFailed):
            self._log.warning("its part of checkpoint %d was not written: %s", said.cut, said.why, extra=where)
        else:
            self._log.debug("its part of checkpoint %d is written", said.cut, extra=where)

    def failed(self, instance: Incarnation | None, epoch: int, reason: BaseException) -> None:
        where = {"instance": instance and instance.instance, "epoch": epoch or None}
        self._log.error("failed: %s", reason, exc_info=reason, extra=where)
