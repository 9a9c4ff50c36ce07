"""Log lines of events: each event of a run's record becomes one line, in the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from primitives.event import Event
from seep.logs.levels import EVENT_LEVELS
from seep.logs.run_log import RunLog
from seep.record.causes.story import DECIDED, ENDS


class EventLines:
    """A listener for events, which logs each of them. It numbers decisions as `seep story` does.

    An operator has at most one open decision, to which its events belong until the one that ends it.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._decisions = 0
        self._open: dict[str, tuple[int, str]] = {}  #: operator -> number of its open decision, and its kind

    def __call__(self, event: Event) -> None:
        fields = self._fields(event)
        self._log.log(EVENT_LEVELS.get(event.kind, logging.INFO), "%s", event, extra=fields)

    def _fields(self, event: Event) -> Mapping[str, object]:
        epoch = getattr(event, "epoch", getattr(event, "first", None))
        return {"node": event.node, "instance": event.instance, "epoch": epoch, "decision": self._decision(event)}

    def _decision(self, event: Event) -> int | None:
        operator = event.operator
        if operator is None:
            return None
        if event.kind in DECIDED:
            self._decisions += 1
            self._open[operator] = self._decisions, event.kind
        number, begun = self._open.get(operator, (None, ""))
        is_of_another = getattr(event, "meanwhile", None) is not None
        if number is not None and event.kind in ENDS[begun] and not is_of_another:
            del self._open[operator]
        return number
