"""The watermark of each slot before this epoch: a row that was late stays late after its slot has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.own import OwnState
from seep.protocol.messages import MAX_WATERMARK

_NEVER = -(2**63)


class Progress:
    """The watermark of each slot at the end of the last epoch; its container, `state`, is part of the operator's state.

    >>> progress = Progress(slot_bits=2)
    >>> progress.advance(SlotSet.full(2), 10)
    >>> progress.passed([pa.array(["a", "b"])], np.array([10, 11])).tolist()
    [True, False]
    """

    def __init__(self, slot_bits: int) -> None:
        self._slot_bits = slot_bits
        self._watermarks = np.full(1 << slot_bits, _NEVER)
        self.state = OwnState("progress", self, slot_bits=slot_bits, value=pa.int64())

    def passed(self, keys: Sequence[pa.Array], times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Says which of the times the watermark had reached before this epoch, in the slots of these keys.

        It hashes the keys only if the watermark had reached one of the times in any slot.
        """
        if times.min(initial=2**63 - 1) > self._watermarks.max():
            return np.zeros(len(times), np.bool_)
        reached: NDArray[np.bool_] = times <= self._watermarks[slots_of(hash_keys(keys), self._slot_bits)]
        return reached

    def reached(self, slots: SlotSet) -> int:
        """Returns the watermark before this epoch in the slots of a piece; it is the same in all of them."""
        return int(self._watermarks[slots.mask(self._slot_bits)].min()) if slots else _NEVER

    def advance(self, slots: SlotSet, watermark: int) -> None:
        """Ends the epoch for some slots. The end of the input is not recorded, as a later run may read more rows."""
        mask = slots.mask(self._slot_bits)
        if watermark != MAX_WATERMARK:
            self._watermarks[mask] = np.maximum(self._watermarks[mask], watermark)

    def get_processing_state(self, slots: SlotSet) -> dict[int, int]:
        known = zip(slots, self._watermarks[slots.mask(self._slot_bits)].tolist(), strict=True)
        return {slot: watermark for slot, watermark in known if watermark != _NEVER}

    def set_processing_state(self, state: Mapping[int, int]) -> None:
        for slot, watermark in state.items():
            self._watermarks[slot] = watermark

    def drop_processing_state(self, slots: SlotSet) -> None:
        self._watermarks[slots.mask(self._slot_bits)] = _NEVER
