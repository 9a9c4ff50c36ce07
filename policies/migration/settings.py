"""Settings of migrations."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from formats.settings import OptionalSeconds, Section


class Strategy(StrEnum):
    """The number of slots that move at once."""

    ALL_AT_ONCE = "all-at-once"  #: ends soonest, with the longest pause
    FLUID = "fluid"  #: one slot in each step: the shortest and most pauses
    BATCHED = "batched"  #: some slots in each step, from all pairs of instances alike
    OPTIMISED = "optimised"  #: some slots of each pair, from as many pairs as have no common instance


class MigrationSettings(Section):
    """The way in which slots move when an assignment changes."""

    strategy: Strategy = Field(Strategy.BATCHED, description="all-at-once, fluid, batched or optimised.")
    batch: int = Field(
        16, ge=1, description="Slots in each step if batched; if optimised, of each pair of instances in it."
    )
    gap: OptionalSeconds = Field(
        None,
        description="Time from the end of a step to the next one, to drain; as long as that takes, up to 1 s, if none.",
    )
    gap_epochs: int = Field(0, ge=0, description="The same in epochs; of the two, the longer counts.")
    lead: int | None = Field(
        None,
        ge=1,
        description="Epochs from a step's announcement to its effect, to prepare it; the query's own if not given.",
    )
    vertical: bool = Field(
        False, description="Put new instances on nodes that are in use, where a replica is if any; else on warm ones."
    )
    prepare: bool = Field(
        True,
        description="Fetch the last backup of slots before they move, so that only what has changed is handed over; "
        "as long as less than a third has.",
    )
