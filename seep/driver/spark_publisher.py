"""The publisher to Spark: marks, in the spools of a run, up to which epoch Spark may read."""

from __future__ import annotations

import threading

from primitives.errors import EnvironmentFault, UserError
from primitives.event import Event
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.record.events import CheckpointStored
from seep.sinks.spark_sink import SparkSink

#: Seconds between two marks at least, because each is flushed to disk; and between two checks without a notice.
_ROUND, _LOOK = 0.02, 1.0


class SparkPublisher(RunListener):
    """Shows rows to Spark, on its own thread, because each mark is flushed to disk.

    Rows that were shown cannot be removed. With storage, a later run may continue from the last stored checkpoint and
    write later rows again; so rows are shown only up to that checkpoint, and the rest when the run has finished.
    """

    def __init__(self, process: ManagerProcess, is_local: bool) -> None:
        self._process = process
        resume = process.program.resume
        #: the epochs of the checkpoint that the run began from, and of the last one in storage (None without storage)
        self._begun = resume.beginning.epoch if resume is not None else 0
        self._stored = self._begun if process.options.storage.location is not None else None
        sinks = {name: sink for name, (sink, _) in process.program.sinks.items() if isinstance(sink, SparkSink)}
        for name, sink in sinks.items():
            if sink.is_temporary and not is_local:
                raise UserError(
                    f"sink {name!r} has no directory that all machines see: give it one, seep.sinks.spark('/shared/…')"
                )
        self._committed = 0  #: the last epoch that all sinks have committed
        self._sinks = list(sinks.values())
        self._shown = dict.fromkeys(self._sinks, 0)
        self._news, self._over = threading.Event(), threading.Event()
        process.events.listen(self._hear)
        process.subscribe(self)
        self._thread = threading.Thread(target=self._run, name="seep Spark publisher", daemon=True)

    def _hear(self, event: Event) -> None:
        if self._stored is not None and isinstance(event, CheckpointStored):
            self._stored = max(self._stored, event.epoch)
            self._news.set()

    def committed(self, epoch: int) -> None:
        self._committed = epoch
        self._news.set()

    def over(self) -> None:
        self._news.set()

    def start(self) -> None:
        if self._sinks:
            self._thread.start()

    def join(self, timeout: float = 10.0) -> None:
        """Waits until all rows of a finished run are shown."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def close(self) -> None:
        self._over.set()
        self._news.set()
        self.join()

    def _run(self) -> None:
        try:
            while not self._over.wait(_ROUND) and not self._process.ended.is_set():
                self._news.wait(_LOOK)
                self._news.clear()
                self._show_all()
            self._show_all()
            self._tell_end()
        except OSError as reason:
            self._process.fail(EnvironmentFault(f"Spark cannot be told what it may read: {reason}"))

    def _show_all(self) -> None:
        committed, stored = self._committed, self._stored
        for sink in self._sinks:
            self._show(sink, committed if sink.at_once or stored is None else stored)

    def _show(self, sink: SparkSink, epoch: int) -> None:
        if epoch > self._shown[sink]:
            self._shown[sink] = epoch
            sink.spool.show(sink.run, epoch)

    def _tell_end(self) -> None:
        """Writes why there will be no more rows, if the run has failed."""
        if self._process.events.of("finished"):
            final = self._process.final_epoch()
            for sink in self._sinks:
                self._show(sink, final or self._begun)
        elif failure := self._process.failure:
            for sink in self._sinks:
                sink.spool.fail(sink.run, str(failure))
