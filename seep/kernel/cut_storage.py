"""The durable storage of cuts in a world, which remains after all processes of the world have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from primitives.slots import SlotSet
from seep.protocol.cuts import Beginning, CutComplete, CutPart, Persist, Recalled


@dataclass(frozen=True, slots=True)
class StoredCut:
    """The parts and positions of a complete cut."""

    beginning: Beginning
    #: operator -> its parts, in the order in which they have to be restored
    parts: Mapping[str, tuple[tuple[SlotSet, tuple[Any, ...]], ...]]


@dataclass(slots=True)
class CutStorage:
    """A storage that takes parts of cuts as they are written, and knows the last complete cut."""

    saved: StoredCut = field(default_factory=lambda: StoredCut(Beginning(0, {}, 0), {}))
    _parts: list[Persist] = field(default_factory=list)

    def write(self, part: Persist) -> CutPart:
        self._parts.append(part)
        return CutPart(part.slots, part.base, len(self._parts) - 1)

    def complete(self, cut: CutComplete) -> None:
        """Records a complete cut: parts with a base follow those of the cut before; parts without one replace them."""
        if cut.cut.only is not None:
            return
        earlier = self.saved.parts if any(part.base is not None for part in cut.parts.values()) else {}
        parts: dict[str, tuple[tuple[SlotSet, tuple[Any, ...]], ...]] = {}
        for instance, part in cut.parts.items():
            before = parts.get(instance.operator, earlier.get(instance.operator, ()))
            written = self._parts[part.reference]
            parts[instance.operator] = (*before, (part.slots, written.chunks))
        self.saved = StoredCut(Beginning(cut.cut.epoch, cut.positions), parts)

    def beginning(self, generation: int) -> Beginning:
        """Returns the beginning of a run that continues from the last complete cut; its epoch is 0 if there is none."""
        return replace(self.saved.beginning, generation=generation)

    def read(self, operator: str, slots: SlotSet) -> Recalled:
        """Returns the state of these slots in the last complete cut."""
        found: list[Any] = []
        for written, chunks in self.saved.parts.get(operator, ()):
            if common := written & slots:
                found += [chunk.select(common) for chunk in chunks]
        return Recalled(tuple(found))
