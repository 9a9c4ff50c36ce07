"""The balancer `autoflow`: AutoFlow's Algorithm 3, which reduces hotspots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from formats.settings import Section
from policies.balance.levelling import first_fit
from policies.balance.loads import Rebalance, SlotLoads
from primitives.slots import SlotSet


class AutoFlowSettings(Section):
    """Settings of the balancer `autoflow`."""

    factor: float = Field(
        0.3,
        gt=0,
        le=1,
        description="Slots move when the emptiest instance lags behind the fullest by this part of the fullest's rows.",
    )


@dataclass(frozen=True, slots=True)
class AutoFlow:
    """Moves slots from the fullest instance to the emptiest, by the rows of the last window."""

    settings: AutoFlowSettings = field(default_factory=AutoFlowSettings)

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        """Returns the moves of Algorithm 3: the fullest instance's slots, largest first, that fit into half of the gap.

        Of slots with equal numbers of rows the lowest comes first. Slots without rows do not move.
        """
        window = windows[-1]
        parts = window.assignment.parts
        load = {index: int(window.rows[slots.array].sum()) for index, slots in parts.items()}
        fullest, emptiest = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
        gap = load[fullest] - load[emptiest]
        if window.moving or not gap or gap / load[fullest] < self.settings.factor:
            return Rebalance()
        slots = _largest_first(parts[fullest], window.rows)
        chosen = slots[first_fit(window.rows[slots].astype(np.float64), gap / 2)]
        if not len(chosen):
            return Rebalance()
        why = (
            f"instance {fullest} had {load[fullest]:,} rows in {window.seconds:g} s, instance {emptiest} had "
            f"{load[emptiest]:,}: {len(chosen)} slots go there"
        )
        return Rebalance({emptiest: SlotSet(chosen)}, why)


def _largest_first(slots: SlotSet, rows: NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
    found: NDArray[np.uint32] = slots.array[np.argsort(-rows[slots.array].astype(np.int64), kind="stable")]
    return found
