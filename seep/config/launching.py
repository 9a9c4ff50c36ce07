"""The options of a launch, from a policy file and the caller."""

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
    """The arguments of `seep.launch`."""

    options: RunOptions
    parallelism: Mapping[str, int]
    rate: Rate | None  #: rate of each source; None: as the query says


def sections_of(policy: PolicyFile) -> dict[str, Any]:
    """Returns the sections of a policy file that are options of a run without conversion."""
    names = ("vm", "pool", "scaling", "backup", "storage", "migration", "balance", "log", "metrics", "dashboard")
    return {name: getattr(policy, name) for name in names}


def launch_settings(given: Mapping[str, Any]) -> LaunchSettings:
    """Makes the arguments from sections of a policy file and fields of `RunSection` and `RunOptions`, or defaults."""
    options = RunOptions(**{each.name: given[each.name] for each in fields(RunOptions) if each.name in given})
    return LaunchSettings(options, given.get("parallelism", {}), _rate(given))


def _rate(given: Mapping[str, Any]) -> Rate | None:
    if given.get("rate") is None:
        if given.get("rate_profile", Profile.STEADY) is not Profile.STEADY:
            raise UserError(f"a rate profile ({given['rate_profile']}) needs a rate, at its highest; see --rate")
        return None
    return Rate(given["rate"], given.get("rate_profile", Profile.STEADY), given.get("rate_period", 60.0))
