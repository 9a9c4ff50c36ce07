"""Settings of detector and policies, with the papers' defaults."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from formats.settings import Seconds, Section


class Mechanism(StrEnum):
    """The way in which slots get to a new instance of an operator with state."""

    AUTO = "auto"  #: handover if the origin is alive, else from its backup
    HANDOVER = "handover"  #: the origin hands its state over between two epochs
    BACKUP = "backup"  #: its backup is split and restored, upstream replays; the origin has no extra work


class DetectorSettings(Section):
    """The thresholds of a bottleneck: k consecutive reports above δ, one report every r."""

    report: Seconds = Field(5.0, description="Time between two reports (r in SEEP).")
    consecutive: int = Field(2, ge=1, description="Reports in a row that make a bottleneck (k).")
    cpu: float = Field(
        0.70, gt=0, le=1, description="Utilisation above which an instance is one (δ): user + system, of its CPU share."
    )
    memory: float = Field(0.85, gt=0, le=1, description="Part of its node's memory budget above which it is one.")
    unsent: int = Field(
        4,
        ge=1,
        description="Epochs of unsent output that make its link too slow, if neither CPU nor receivers are.",
    )
    idle_cpu: float = Field(
        0.50, gt=0, le=1, description="Utilisation below which the CPU does not explain output that waits."
    )


class ScaleInSettings(Section):
    """The conditions under which instances are merged."""

    enabled: bool = Field(True, description="Whether instances are ever merged.")
    below: float = Field(0.40, gt=0, lt=1, description="Utilisation that the instances left would have, at most.")
    consecutive: int = Field(4, ge=1, description="Reports in a row that it takes.")


class Bounds(Section):
    """The bounds within which a policy may scale one operator."""

    scale: bool = Field(True, description="Whether it is scaled at all.")
    min: int = Field(1, ge=1, description="Fewest instances.")
    max: int | None = Field(None, ge=1, description="Most instances; its number of slots if not given.")
    mechanism: Mechanism | None = Field(None, description="How its state moves; that of `scaling` if not given.")

    @model_validator(mode="after")
    def _in_order(self) -> Bounds:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max is {self.max}, and min {self.min}")
        return self


class ScalingSettings(Section):
    """Settings of scaling: which policy decides, and how."""

    policy: str = Field(
        "manual",
        description="cpu-threshold, true-rate, latency, schedule, manual, or a class of your own as module:Class.",
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="What that policy takes, by keyword.")
    detector: DetectorSettings = Field(DetectorSettings(), description="When an instance is a bottleneck.")
    scale_in: ScaleInSettings = Field(ScaleInSettings(), description="When instances are merged.")
    cooldown: Seconds = Field(15.0, description="Time after a change of an operator until the next one of it.")
    timeout: Seconds = Field(
        600.0, description="Time after which a decision is given up that makes no progress, as when no VM comes."
    )
    mechanism: Mechanism = Field(Mechanism.AUTO, description="How state moves to new instances.")
    operators: dict[str, Bounds] = Field(default_factory=dict, description="Bounds of single operators, by name.")
    default: Bounds = Field(Bounds(), description="Bounds of all operators that are not named.")
    sources: bool = Field(False, description="Whether sources that are not named are scaled.")
    sinks: bool = Field(False, description="Whether sinks that are not named are scaled.")

    @model_validator(mode="after")
    def _leaves_a_gap(self) -> ScalingSettings:
        if self.scale_in.enabled and self.scale_in.below >= self.detector.cpu:
            raise ValueError(
                f"scale_in.below is {self.scale_in.below}, not below detector.cpu ({self.detector.cpu}): "
                "what is merged would be split again"
            )
        return self
