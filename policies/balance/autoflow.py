"""The balancer of AutoFlow: its Algorithm 3, hotspot diminishing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from policies.balance.first_fit import first_fit
from policies.balance.loads import Rebalance, SlotLoads
from primitives.settings import Section
from primitives.slots import SlotSet


class AutoFlowSettings(Section):
    """What the balancer `autoflow` takes."""

    factor: float = Field(
        1.2, gt=1, description="How many times the mean the fullest instance may have to do before slots move."
    )


@dataclass(frozen=True, slots=True)
class AutoFlow:
    """Moves slots from the fullest instance to the emptiest, by the rows of the last window."""

    settings: AutoFlowSettings = field(default_factory=AutoFlowSettings)

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        """Algorithm 3: of the fullest one's slots, in order, those that fit into half the gap to the emptiest."""
        window = windows[-1]
        parts = window.assignment.parts
        load = {index: int(window.rows[slots.array].sum()) for index, slots in parts.items()}
        fullest, emptiest = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
        if window.moving or load[fullest] <= self.settings.factor * sum(load.values()) / len(load):
            return Rebalance()
        slots = parts[fullest].array
        half_the_gap = (load[fullest] - load[emptiest]) / 2
        chosen = slots[first_fit(window.rows[slots].astype(np.float64), half_the_gap)]
        if not len(chosen):
            return Rebalance()
        why = (
            f"instance {fullest} had {load[fullest]:,} rows in {window.seconds:g} s, instance {emptiest} had "
            f"{load[emptiest]:,}: {len(chosen)} slots go there"
        )
        return Rebalance({emptiest: SlotSet(chosen)}, why)
