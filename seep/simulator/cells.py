"""The simulator's state container: plain dictionaries with the four verbs, fast enough for thousands of schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from primitives.errors import InternalError
from primitives.hashing import hash_key
from primitives.slots import SlotSet, slot_of


@cache
def slot_of_key(key: Any, slot_bits: int) -> int:
    return slot_of(hash_key(key), slot_bits)


@dataclass(frozen=True, slots=True)
class CellChunk:
    """The cells of some slots, in full or as changes: void `replaced`, remove `deleted`, put `cells`."""

    name: str
    replaced: SlotSet
    cells: Mapping[int, Mapping[Any, Any]]  #: slot -> key -> value
    deleted: Mapping[int, frozenset[Any]]  #: slot -> keys

    @property
    def nbytes(self) -> int:
        return sum(len(cells) for cells in self.cells.values())

    def select(self, slots: SlotSet) -> CellChunk:
        cells = {s: c for s, c in self.cells.items() if s in slots}
        return CellChunk(self.name, self.replaced & slots, cells, {s: d for s, d in self.deleted.items() if s in slots})

    def merge(self, deltas: Sequence[CellChunk]) -> CellChunk:
        replaced, cells = self.replaced, {s: dict(c) for s, c in self.cells.items()}
        deleted = {s: set(d) for s, d in self.deleted.items()}
        for delta in deltas:
            replaced |= delta.replaced
            for slot in delta.replaced:
                cells.pop(slot, None)
                deleted.pop(slot, None)
            _apply(cells, deleted, delta)
        return CellChunk(self.name, replaced, cells, {s: frozenset(d) for s, d in deleted.items()})


def _apply(cells: dict[int, dict[Any, Any]], deleted: dict[int, set[Any]], delta: CellChunk) -> None:
    for slot, keys in delta.deleted.items():
        deleted.setdefault(slot, set()).update(keys)
        for key in keys:
            cells.get(slot, {}).pop(key, None)
    for slot, new in delta.cells.items():
        deleted.get(slot, set()).difference_update(new)
        cells.setdefault(slot, {}).update(new)


@dataclass(slots=True)
class _Interval:
    """The changes between two marks."""

    since: int
    changed: dict[int, set[Any]]
    replaced: SlotSet


class Cells:
    """Immutable values by key, grouped by slot; lists the changes since any marked epoch."""

    def __init__(self, name: str, slot_bits: int) -> None:
        self.name = name
        self.slot_bits = slot_bits
        self._cells: dict[int, dict[Any, Any]] = {}
        self._intervals: list[_Interval] = []

    def get(self, key: Any, default: Any = None) -> Any:
        return self._cells.get(slot_of_key(key, self.slot_bits), {}).get(key, default)

    def put(self, key: Any, value: Any) -> None:
        slot = slot_of_key(key, self.slot_bits)
        self.put_in(slot, key, value)

    def put_in(self, slot: int, key: Any, value: Any) -> None:
        self._cells.setdefault(slot, {})[key] = value
        self._note(slot, key)

    def get_in(self, slot: int, key: Any, default: Any = None) -> Any:
        return self._cells.get(slot, {}).get(key, default)

    def delete(self, key: Any) -> None:
        slot = slot_of_key(key, self.slot_bits)
        if self._cells.get(slot, {}).pop(key, None) is not None:
            self._note(slot, key)

    def keys_in(self, slots: SlotSet) -> list[Any]:
        return [key for slot, cells in self._cells.items() if slot in slots for key in cells]

    def _note(self, slot: int, key: Any) -> None:
        if self._intervals:
            self._intervals[-1].changed.setdefault(slot, set()).add(key)

    # -- the four verbs -------------------------------------------------------------------------------------------

    def snapshot(self, slots: SlotSet, since: int | None = None) -> list[CellChunk]:
        if since is None:
            return [CellChunk(self.name, slots, {s: dict(c) for s, c in self._cells.items() if s in slots}, {})]
        changed, replaced = self._since(since)
        cells: dict[int, dict[Any, Any]] = {}
        deleted: dict[int, frozenset[Any]] = {}
        for slot, keys in changed.items():
            if slot in slots and slot not in replaced:
                live = self._cells.get(slot, {})
                cells[slot] = {key: live[key] for key in keys if key in live}
                deleted[slot] = frozenset(key for key in keys if key not in live)
        for slot in replaced & slots:
            cells[slot] = dict(self._cells.get(slot, {}))
        return [CellChunk(self.name, replaced, cells, deleted)]

    def restore(self, chunks: Iterable[CellChunk]) -> None:
        for chunk in chunks:
            self.drop(chunk.replaced)
            for slot, keys in chunk.deleted.items():
                for key in keys:
                    if self._cells.get(slot, {}).pop(key, None) is not None:
                        self._note(slot, key)
            for slot, cells in chunk.cells.items():
                for key, value in cells.items():
                    self.put_in(slot, key, value)

    def restore_ahead(self, chunks: Iterable[CellChunk]) -> bool:
        self.restore(chunks)
        return True

    def adopt(self, slots: SlotSet) -> None:
        if self._intervals:
            self._intervals[-1].replaced |= slots

    def drop(self, slots: SlotSet) -> None:
        for slot in slots:
            self._cells.pop(slot, None)
        if self._intervals:
            self._intervals[-1].replaced |= slots

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        for part in slots.parts(parts):
            self.drop(part)
            yield

    def mark(self, epoch: int) -> None:
        if self._intervals and self._intervals[-1].since == epoch:
            return
        self._intervals.append(_Interval(epoch, {}, SlotSet.empty()))

    def release(self, epoch: int) -> None:
        self._intervals = [i for i in self._intervals if i.since >= epoch]

    @property
    def marks(self) -> tuple[int, ...]:
        return tuple(i.since for i in self._intervals)

    def changed(self, since: int) -> int:
        return sum(len(keys) for keys in self._since(since)[0].values())

    def _since(self, epoch: int) -> tuple[dict[int, set[Any]], SlotSet]:
        if epoch not in self.marks:
            raise InternalError(f"{self.name}: changes since epoch {epoch} are not known, only since {self.marks}")
        changed: dict[int, set[Any]] = {}
        replaced = SlotSet.empty()
        for interval in self._intervals:
            if interval.since >= epoch:
                replaced |= interval.replaced
                for slot, keys in interval.changed.items():
                    changed.setdefault(slot, set()).update(keys)
        return changed, replaced
