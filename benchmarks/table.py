"""The table that every script here prints: what was measured next to what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Target(NamedTuple):
    """A measurement's target."""

    what: str
    unit: str
    divisor: float  #: from the unit of the JSON to the one shown
    bound: float  #: in the unit shown
    at_least: bool = False  #: else it has to be below

    def met(self, value: float) -> bool:
        shown = value / self.divisor
        return shown >= self.bound if self.at_least else shown < self.bound


def table(targets: Mapping[str, Target], measured: Mapping[str, float]) -> str:
    """A line for each measurement, those with a target first; targets that were not measured are left out.

    >>> print(table({"gap_s": Target("Longest pause", "s", 1.0, 0.5)}, {"gap_s": 0.41, "kills": 3}))
                                                                    measured    wanted  ok?     unit
    Longest pause                                                       0.41     < 0.5  ok      s
    kills                                                                  3
    """
    lines = [f"{'':<62}{'measured':>10}{'wanted':>10}  ok?     unit"]
    lines += [_line(target, measured[key]) for key, target in targets.items() if key in measured]
    return "\n".join(lines + [f"{key:<62}{value:>10.4g}" for key, value in measured.items() if key not in targets])


def _line(target: Target, value: float) -> str:
    wanted = f"{'>=' if target.at_least else '<'} {target.bound:g}"
    word = "ok" if target.met(value) else "missed"
    return f"{target.what:<62}{value / target.divisor:>10.3g}{wanted:>10}  {word:<8}{target.unit}".rstrip()
