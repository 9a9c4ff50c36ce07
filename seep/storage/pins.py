"""Pins, which protect a checkpoint from removal while it is read.

A reader stores a pin and then looks for an announced removal; a remover announces the removal and then looks for pins.
So at least one of the two sees the other, and gives way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self

from primitives.errors import SeepError
from seep.storage.reading import M, Reader
from seep.storage.records import Lease, Records


class Pin(Generic[M]):
    """Keeps a checkpoint until the pin is released or its lease has expired.

    As a context, it is released at the end.
    """

    def __init__(
        self,
        records: Records,
        manifests: Reader[M],
        id: int,
        reader: str,
        lease: float,
        clock: Callable[[], float],
        generation: int | None = None,
    ) -> None:
        self.id = id
        self._records, self._manifests = records, manifests
        self._reader, self._lease, self._clock, self._generation = reader, lease, clock, generation
        self._token = uuid.uuid4().hex
        self._key = ""
        self.info: M = self.renew()  #: the content of its manifest

    def renew(self) -> M:
        """Renews the lease.

        Raises NotStanding if the lease expired too early, or the checkpoint was not there at all.
        """
        lease = Lease(self._reader, self._clock() + self._lease, self._generation)
        self._key = self._records.pin(self.id, self._token, lease)
        try:
            return self._manifests.standing(self.id)
        except BaseException:
            self._let_go()
            raise

    def release(self) -> None:
        """Releases the checkpoint."""
        self._records.store.delete([self._key])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._let_go()

    def _let_go(self) -> None:
        with suppress(SeepError):  # the lease expires anyway
            self.release()
