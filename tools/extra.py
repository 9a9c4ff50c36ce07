"""Prints what an extra of the project asks for, for a lock of its own: python -m tools.extra docs."""

from __future__ import annotations

import sys
from importlib.metadata import requires

from packaging.requirements import Requirement

from primitives.errors import DISTRIBUTION


def asked_by(extra: str) -> list[str]:
    """The requirements of one extra, without those that the project has anyway."""
    asked = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    chosen = [each for each in asked if each.marker and each.marker.evaluate({"extra": extra})]
    return [f"{each.name}{each.specifier}" for each in chosen]


if __name__ == "__main__":
    print(*asked_by(sys.argv[1]), sep="\n")
