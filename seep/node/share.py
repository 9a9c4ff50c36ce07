"""A CPU share: limits a node to a part of a core by pausing its instances, so that it behaves like a small VM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds of unused share that are kept for later: few, so that a VM cannot save up for a peak.
_SAVED = 0.1
#: Seconds of one pause, at least and at most; after it, the share is checked again.
_SHORTEST, _LONGEST = 0.0005, 0.05


class CpuShare:
    """A limit in cores for all threads of a process together; the threads that call `pace` pause for all of them.

    A thread is not interrupted between two calls of `pace`: all threads pause afterwards for the time it has used.
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
        self._credit = credit  #: free CPU seconds at the start, as burstable VMs have them
        self._clock, self._used, self._sleep = clock, used, sleep
        self._lock = threading.Lock()
        #: CPU seconds that may be used at once; negative if too many were used
        self._balance = 0.0
        self._at, self._before = clock(), used()

    def pace(self) -> None:
        """Pauses until the process has not used more than its share."""
        while (owed := self._owed()) > 0:
            self._sleep(min(max(owed / self.cores, _SHORTEST), _LONGEST))

    def paid(self) -> float:
        """Returns the CPU seconds that the process has used within its share.

        They grow by `cores` a second at most, so they show how busy a VM is even after a long piece of work.
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
    """A share without limit; counted as one core."""

    def __init__(self) -> None:
        super().__init__(1.0)

    def pace(self) -> None:
        pass

    def paid(self) -> float:
        return time.process_time()
