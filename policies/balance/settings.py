"""Settings of balancing."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from formats.settings import Seconds, Section


class BalanceSettings(Section):
    """Settings of balancing: which balancer, how often, and how."""

    enabled: bool = Field(False, description="Whether slots move by themselves.")
    balancer: str = Field("hotspot", description="hotspot, autoflow, or a class of your own as module:Class.")
    settings: dict[str, Any] = Field(default_factory=dict, description="What that balancer takes, by keyword.")
    window: Seconds = Field(2.0, description="Time over which rows and CPU time of slots are counted.")
    history: int = Field(8, ge=1, description="Windows that a balancer is shown, the last one among them.")
    operators: tuple[str, ...] | None = Field(
        None, description="Names of the operators that are balanced; all that have state if not given."
    )
