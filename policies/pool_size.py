"""The number of VMs that an adaptive pool keeps warm."""

from __future__ import annotations

import math
from collections.abc import Sequence


def adaptive_size(
    taken: Sequence[float], provisioning: float, now: float, least: int, most: int, horizon: float = 60.0
) -> int:
    """Returns the number of warm VMs taken during one provisioning, at the rate of the last `horizon` seconds.

    By Little's law: rate of taking times time of provisioning, rounded up. `taken` has the times at which VMs were
    taken. The result is at least `least`, the reserve for failures, to which it returns when no VM is taken for a
    while, and at most `most`.

    >>> adaptive_size([2.0, 12.0, 14.0], provisioning=90.0, now=20.0, least=1, most=8)
    5
    >>> adaptive_size([2.0, 12.0, 14.0], provisioning=90.0, now=80.0, least=1, most=8)
    1
    """
    recent = sum(now - horizon < moment <= now for moment in taken)
    return max(least, min(most, math.ceil(recent * provisioning / horizon)))
