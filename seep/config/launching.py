"""What a run is launched with, as its policy file and whoever launches it say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from primitives.errors import UserError
from seep.config.policy import PolicyFile
from seep.driver.options import RunOptions
from seep.rows.rate import Profile, Rate


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """As `seep.launch` takes them."""

    options: RunOptions
    parallelism: Mapping[str, int]
    rate: Rate | None  #: of each source; None: as the query says


def sections_of(policy: PolicyFile) -> dict[str, Any]:
    """The sections of a policy file that are options of a run as they stand."""
    names = ("vm", "pool", "scaling", "backup", "storage", "migration", "balance")
    return {name: getattr(policy, name) for name in names}


def launch_settings(said: Mapping[str, Any]) -> LaunchSettings:
    """`said` has sections of a policy file and fields of `RunSection` and `RunOptions`; the rest is default."""
    options = RunOptions(**{each.name: said[each.name] for each in fields(RunOptions) if each.name in said})
    return LaunchSettings(options, said.get("parallelism", {}), _rate(said))


def _rate(said: Mapping[str, Any]) -> Rate | None:
    if said.get("rate") is None:
        if said.get("rate_profile", Profile.STEADY) is not Profile.STEADY:
            raise UserError(f"a rate profile ({said['rate_profile']}) needs a rate, at its highest; see --rate")
        return None
    return Rate(said["rate"], said.get("rate_profile", Profile.STEADY), said.get("rate_period", 60.0))
