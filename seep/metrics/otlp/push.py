"""Pushes the metrics of a run at an interval, and each of its traces once, when all of it has ended.

A collector can hold up nothing but these pushes: they have a thread of their own. Nothing waits in a queue: metrics are
those of the present, and traces stay in the record, which keeps the newest ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from seep.logs.run_log import RunLog
from seep.metrics.metric import Present
from seep.metrics.otlp.collector import Collector, NotTaken, Pushed
from seep.metrics.otlp.data import metrics_data, otlp_spans, resource_of
from seep.metrics.settings import OtlpSettings
from seep.record.causes.spans import Span
from seep.record.facts import Facts
from seep.record.record import Record
from seep.threads.worker import Worker

#: A request has whole traces of at least so many spans, if so many wait.
_SPANS = 500

Trace = tuple[Span, ...]


class OtlpPush:
    """Pushes what it was shown last, until it is closed."""

    def __init__(
        self, settings: OtlpSettings, headers: Mapping[str, str], run: str, query: str, record: Record, log: RunLog
    ) -> None:
        self._settings, self._run, self._query, self._record, self._log = settings, run, query, record, log
        self._collector = Collector(str(settings.url), headers, settings.timeout)
        self._resource = resource_of(run, query)
        self._facts: Facts | None = None  #: replaced as a whole, by another thread
        self._due = 0.0  #: time of the next push; only for the thread that shows
        self._is_pushing = self._is_over = False
        self._next_trace = 0  #: number of the first trace that is not done with
        self._failures = dict.fromkeys(Pushed, 0)  #: since the last success
        self._worker = Worker("seep otlp")

    def show(self, facts: Facts) -> None:
        """Pushes these facts if the time has come, unless a push is under way; does not wait. For one thread."""
        self._facts = facts
        if time.monotonic() >= self._due and not self._is_pushing:
            self._due = time.monotonic() + self._settings.interval
            self._put()

    def close(self, facts: Facts) -> None:
        """Pushes these facts, the last ones; waits for that, but not longer than a push may take."""
        if not self._is_over:
            self._facts = facts
            self._put()
            self._worker.close(self._settings.timeout)
            self._is_over = True
            self._collector.close()

    def _put(self) -> None:
        self._is_pushing = True
        self._worker.put(self._push)

    # -- on its thread ------------------------------------------------------------------------------------------------

    def _push(self) -> None:
        try:
            self._push_traces()
            self._push_metrics()
        finally:
            self._is_pushing = False

    def _push_metrics(self) -> None:
        present = None if self._facts is None else Present.of(self._run, self._query, self._facts)
        if present is not None and not self._is_over:
            self._note(Pushed.METRICS, _attempt(partial(self._send_metrics, present)))

    def _push_traces(self) -> None:
        """Pushes the traces that have ended; those that the collector does not take now stay for the next time."""
        first, waiting = self._record.traces.since(self._next_trace)
        missed, self._next_trace = first - self._next_trace, first
        for traces in _requests(waiting):
            if self._is_over:
                return
            refusal = _attempt(partial(self._send_traces, traces))
            is_done_with = refusal is None or refusal.is_final
            self._note(Pushed.TRACES, refusal, missed + (len(traces) if refusal and is_done_with else 0))
            if not is_done_with:
                return
            self._next_trace += len(traces)
            missed = 0

    def _send_metrics(self, present: Present) -> NotTaken | None:
        return self._collector.metrics(metrics_data(present, self._record.begun, self._resource))

    def _send_traces(self, traces: Iterable[Trace]) -> NotTaken | None:
        spans = [span for trace in traces for span in trace]
        return self._collector.spans(otlp_spans(spans, self._record.begun, self._resource))

    def _note(self, what: Pushed, refusal: NotTaken | None, dropped: int = 0) -> None:
        """Counts a push; logs the first of several failures in a row, and the end of the row."""
        self._record.pushed(what.value, refusal is not None, dropped)
        before, url = self._failures[what], self._collector.urls[what]
        self._failures[what] = 0 if refusal is None else before + 1
        if refusal is not None and not before:
            text = "%s cannot be pushed to %s: %s; the next ones are tried every %g s"
            self._log.warning(text, what.value, url, refusal.reason, self._settings.interval)
        elif refusal is None and before:
            self._log.info("%s are pushed to %s again, after failures: %d", what.value, url, before)


def _attempt(send: Callable[[], NotTaken | None]) -> NotTaken | None:
    try:
        return send()
    except Exception as reason:  # it counts as any failure: the run goes on
        return NotTaken(f"{reason!r:.200}", is_final=True)


def _requests(traces: Iterable[Trace]) -> Iterator[list[Trace]]:
    """Yields traces in groups for one request each."""
    group: list[Trace] = []
    for trace in traces:
        group.append(trace)
        if sum(map(len, group)) >= _SPANS:
            yield group
            group = []
    if group:
        yield group
