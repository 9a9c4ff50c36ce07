"""A checkpoint or savepoint in storage, opened for inspection."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from formats.manifest import Component, Manifest, read_manifest
from primitives.errors import Damaged, EnvironmentFault, SeepError, UserError
from primitives.slots import SlotSet
from seep.inspection.container import StoredContainer
from seep.inspection.listing import Storage, catalogue_in, opened, queries_in
from seep.rows.readable import readable
from seep.storage.catalogue import Catalogue
from seep.storage.pins import Pin
from seep.storage.reading import NotStanding
from seep.storage.store import BlobStore

LATEST = "latest"


class Stored:
    """A complete checkpoint. As a context it is pinned, so that it is not removed before the context ends."""

    def __init__(self, store: BlobStore, manifest: Manifest) -> None:
        self.store, self.manifest = store, manifest
        self._pin: Pin[Manifest] | None = None

    @classmethod
    def open(cls, storage: Storage, query: str, checkpoint: int | str = LATEST) -> Self:
        """Opens the checkpoint with that number, or the newest. A UserError lists the existing checkpoints."""
        store = opened(storage)
        return cls(store, _manifest(store, query, checkpoint))

    def __enter__(self) -> Self:
        try:
            self._pin = catalogue_in(self.store, self.manifest.query).pin(self.manifest.id, "an inspection")
        except (NotStanding, Damaged):
            raise
        except EnvironmentFault:
            # Without permission to write it reads without a pin: if the checkpoint is removed meanwhile, reading fails.
            self._pin = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pin is not None:
            with suppress(SeepError):  # its lease expires
                self._pin.release()

    # --- contents -----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return f"checkpoint {self.manifest.id} of {self.manifest.query}"

    def operators(self) -> list[str]:
        """Lists the operators that have state."""
        return list(self.manifest.components)

    def component(self, operator: str) -> Component:
        """Returns the entry of an operator in the manifest."""
        _check_known(self.manifest.components, operator, f"{self} has no state of an operator", "it has state of")
        return self.manifest.components[operator]

    def containers(self, operator: str) -> list[str]:
        """Lists the names of an operator's containers."""
        return list(self.component(operator).containers)

    def container(self, operator: str, container: str | None = None) -> StoredContainer:
        """Returns a container; it need not be named if the operator has only one."""
        component = self.component(operator)
        if container is None and len(component.containers) == 1:
            (container,) = component.containers
        if container is None:
            named = ", ".join(component.containers) or "none"
            raise UserError(f"operator {operator!r} has several containers: name one of {named}")
        _check_known(component.containers, container, f"operator {operator!r} in {self} has no state", "it has")
        return StoredContainer(operator, container, component, self.store.get)

    # --- state --------------------------------------------------------------------------------------------------------

    def table(
        self,
        operator: str,
        container: str | None = None,
        *,
        slots: SlotSet | None = None,
        keys: Mapping[str, Any] | None = None,
        raw: bool = False,
    ) -> pa.Table:
        """Returns the rows of a container: all, those of some slots, or those of a key, for which it reads one slot.

        Python objects become JSON text; `raw` leaves them as they are stored, for `unpacked`.
        """
        rows = self.container(operator, container).rows(slots, keys)
        return pa.Table.from_batches([rows if raw else readable(rows)])


def _manifest(store: BlobStore, query: str, checkpoint: int | str) -> Manifest:
    catalogue = catalogue_in(store, query)
    if checkpoint == LATEST:
        latest = catalogue.latest()
        if latest is None:
            there = ", ".join(queries_in(store)) or "nothing"
            raise UserError(f"{store.name} has no complete checkpoint of query {query!r}; it has {there}")
        return latest
    number = _number(checkpoint)
    try:
        return read_manifest(catalogue.read_manifest(number), f"checkpoint {number} of {query}")
    except NotStanding as reason:
        raise UserError(f"{reason}; {_there(catalogue)}") from reason


def _number(checkpoint: int | str) -> int:
    if isinstance(checkpoint, str) and not (checkpoint.isascii() and checkpoint.isdecimal()):
        raise UserError(f"checkpoint {checkpoint!r} is not a checkpoint: say {LATEST}, or a number")
    return int(checkpoint)


def _there(catalogue: Catalogue[Manifest]) -> str:
    ids = ", ".join(str(manifest.id) for manifest in catalogue.complete())
    return f"there are {ids}" if ids else "there is none at all"


def _check_known(there: Collection[str], name: str, refusal: str, otherwise: str) -> None:
    if name not in there:
        raise UserError(f"{refusal} {name!r}; {otherwise} {', '.join(there) or 'nothing'}")
