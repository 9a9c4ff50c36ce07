"""First fit: of some loads, those that go into the room that is left."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)  # type: ignore[untyped-decorator]
def first_fit(loads: NDArray[np.float64], room: float) -> NDArray[np.bool_]:
    """Which of the loads are taken if each in its turn is, as long as it goes in; one that is nothing never is.

    >>> first_fit(np.array([5.0, 9.0, 4.0, 0.0, 2.0]), 11.0).tolist()
    [True, False, True, False, True]
    """
    taken = np.zeros(loads.size, np.bool_)
    for place in range(loads.size):
        if 0.0 < loads[place] <= room:
            taken[place] = True
            room -= loads[place]
    return taken
