"""A CPU share: makes a node a small VM, by pausing its instances when its process has had its part of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds of unused share that are kept for later: short, so that a VM cannot save up for a peak.
_SAVED = 0.1
#: Seconds of one pause, at least and at most; then it looks again.
_SHORTEST, _LONGEST = 0.0005, 0.05


class CpuShare:
    """So many cores for all threads of a process together; those that call `pace` pay for the others too.

    What a thread does between two calls is not cut short: it is paid for afterwards, by all.
    """

    def __init__(
        self,
        cores: float,
        credit: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cores = cores
        self._credit = credit  #: CPU seconds at the start that are not paid for, as burstable VMs have them
        self._clock, self._used, self._sleep = clock, used, sleep
        self._lock = threading.Lock()
        #: CPU seconds that may be used at once; below 0, that are owed
        self._balance = 0.0
        self._at, self._before = clock(), used()

    def pace(self) -> None:
        """Returns when nothing is owed."""
        while (owed := self._owed()) > 0:
            self._sleep(min(max(owed / self.cores, _SHORTEST), _LONGEST))

    def paid(self) -> float:
        """CPU seconds that the process has used and paid for: without what it still owes.

        Grows by `cores` a second at most, so it tells how busy a VM is even while a long piece of work is paid for.
        """
        return self._used() - max(0.0, self._owed())

    def _owed(self) -> float:
        with self._lock:
            now, used = self._clock(), self._used()
            earned, spent = (now - self._at) * self.cores, used - self._before
            given = min(self._credit, spent)
            self._credit -= given
            self._balance = min(self._balance + earned + given - spent, _SAVED * self.cores)
            self._at, self._before = now, used
            return -self._balance


class NoShare(CpuShare):
    """No limit: as much as the machine gives; counted as one core."""

    def __init__(self) -> None:
        super().__init__(1.0)

    def pace(self) -> None:
        pass

    def paid(self) -> float:
        return time.process_time()
