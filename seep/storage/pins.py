"""Reading in peace: a checkpoint that somebody has pinned is not removed.

Whoever pins writes that down, and then looks whether somebody is about to remove the checkpoint; whoever removes
announces it, and then looks for pins. So at least one of the two sees the other, and gives way.
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
    """Keeps a checkpoint until it is released, or its lease has run out; as a context, until the end of that."""

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
        self.info: M = self.renew()  #: what its manifest says

    def renew(self) -> M:
        """The lease begins anew; NotStanding if that was too late, or there was nothing to read from the beginning."""
        lease = Lease(self._reader, self._clock() + self._lease, self._generation)
        self._key = self._records.pin(self.id, self._token, lease)
        try:
            return self._manifests.standing(self.id)
        except BaseException:
            self._let_go()
            raise

    def release(self) -> None:
        """Lets the checkpoint go."""
        self._records.store.delete([self._key])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._let_go()

    def _let_go(self) -> None:
        with suppress(SeepError):  # the lease runs out by itself
            self.release()
