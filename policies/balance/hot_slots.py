"""Slots that are too hot for any instance, and what can be done about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from policies.balance.loads import HotKey, Numbers, SlotLoads
from policies.words import percent


def newly_hot(windows: Sequence[SlotLoads], work: Numbers, factor: float, consecutive: int) -> tuple[HotKey, ...]:
    """Slots that in each of the last windows had more than `factor` times what an instance should have.

    Only those of which that was not so a window before; so each is told once while it lasts.
    """
    hot = _too_hot(windows, work, factor, consecutive)
    known = _too_hot(windows, work[:-1], factor, consecutive)
    return tuple(_described(windows, work, hot & ~known))


def _too_hot(windows: Sequence[SlotLoads], work: Numbers, factor: float, consecutive: int) -> NDArray[np.bool_]:
    if len(work) < consecutive:
        return np.zeros(work.shape[1], np.bool_)
    fair = work.sum(axis=1, keepdims=True) / len(windows[-1].assignment.parts)
    found: NDArray[np.bool_] = (work > factor * fair)[-consecutive:].all(axis=0)
    return found


def _described(windows: Sequence[SlotLoads], work: Numbers, hot: NDArray[np.bool_]) -> Iterator[HotKey]:
    window, now = windows[-1], work[-1]
    for slot in np.flatnonzero(hot).tolist():
        instance, share = int(window.assignment.owners[slot]), float(now[slot] / now.sum())
        heaviest = window.heaviest.get(slot)
        count = len(window.assignment.parts)
        why = (
            f"slot {slot} of instance {instance} makes {percent(share)} of all work, and one of {count} instances "
            f"should have {percent(1 / count)}; "
            + (f"its heaviest key {heaviest.key} has {percent(heaviest.share)} of its rows; " if heaviest else "")
            + "to move it would not help: aggregate before the rows are keyed, or divide the key"
        )
        yield HotKey(slot, instance, share, heaviest.key if heaviest else None, why)
