"""The balancer `hotspot`: as AutoFlow, but makes only moves that reduce the highest load, and ignores short peaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from formats.settings import Section
from policies.balance.levelling import SlotLayout, levelled
from policies.balance.loads import HotKey, Numbers, Rebalance, SlotLoads, work_of
from policies.words import percent
from primitives.slots import SlotSet


class HotspotSettings(Section):
    """Settings of the balancer `hotspot`."""

    factor: float = Field(
        1.1, gt=1, description="How many times the mean the fullest instance may have to do before slots move."
    )
    consecutive: int = Field(2, ge=1, description="In how many of the windows that it knows.")
    margin: float = Field(
        0.05, ge=0, lt=1, description="Part by which what the fullest instance has to do must fall, else nothing moves."
    )
    rest: int = Field(2, ge=0, description="Windows for which a slot that moved stays where it is.")
    smoothing: float = Field(
        0.4, gt=0, le=1, description="Weight of the last window; of those before, each has less by that part."
    )
    max_moves: int | None = Field(None, ge=1, description="Most slots that move at once; no bound if not given.")


@dataclass(frozen=True, slots=True)
class Hotspot:
    """Moves slots between any number of instances, if that would have helped in the windows so far."""

    settings: HotspotSettings = field(default_factory=HotspotSettings)

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        work = work_of(windows)
        hot = newly_hot(windows, work, self.settings.factor, self.settings.consecutive)
        indices, owners = np.unique(windows[-1].assignment.owners, return_inverse=True)
        before = SlotLayout.of(work, self._weights(len(windows)), owners)
        if not self._is_uneven(before):
            return Rebalance(hot=hot)
        after = levelled(before, self._movable(windows), self._enough, self.settings.max_moves or len(owners))
        if after.fullest > (1 - self.settings.margin) * before.fullest:
            return Rebalance(hot=hot)
        return Rebalance(_gains(indices, before, after), _why(windows, before, after), hot)

    def _weights(self, count: int) -> Numbers:
        """Returns the weights of windows by exponential smoothing, oldest first."""
        powers = np.asarray((1 - self.settings.smoothing) ** np.arange(count)[::-1], np.float64)
        weights: Numbers = powers / powers.sum()
        return weights

    def _is_uneven(self, layout: SlotLayout) -> bool:
        """Whether the load was uneven in enough of the windows, assuming today's owners of slots."""
        uneven = layout.loads.max(axis=1) > self.settings.factor * layout.means
        return int(np.count_nonzero(uneven)) >= self.settings.consecutive

    @property
    def _enough(self) -> float:
        """The factor at which an instance stops giving slots; well below the start factor, so that moves stay rare."""
        return 1 + (self.settings.factor - 1) / 4

    def _movable(self, windows: Sequence[SlotLoads]) -> NDArray[np.bool_]:
        """Returns which slots are not moving, and have had their present owner for long enough."""
        latest = windows[-1].assignment
        movable = ~windows[-1].moving.mask(latest.slot_bits)
        for window in windows[:-1][-self.settings.rest :] if self.settings.rest else ():
            movable &= window.assignment.owners == latest.owners
        return movable


def _gains(indices: NDArray[np.int32], before: SlotLayout, after: SlotLayout) -> dict[int, SlotSet]:
    moved = before.owners != after.owners
    return {
        int(indices[owner]): SlotSet(np.flatnonzero(moved & (after.owners == owner)))
        for owner in np.unique(after.owners[moved])
    }


def _why(windows: Sequence[SlotLoads], before: SlotLayout, after: SlotLayout) -> str:
    mean, moved = float(before.weights @ before.means), int((before.owners != after.owners).sum())
    unit = "rows" if any(window.cpu is None for window in windows) else "CPU time"
    return (
        f"by {unit} the fullest of {before.loads.shape[1]} instances has {before.fullest / mean:.2f} times the mean; "
        f"{moved} slots move, then it has {after.fullest / mean:.2f} times"
    )


def newly_hot(windows: Sequence[SlotLoads], work: Numbers, factor: float, consecutive: int) -> tuple[HotKey, ...]:
    """Returns slots that in each of the last windows had more than `factor` times an instance's fair share.

    Only those that did not fulfil this one window before, so that each is reported once while it lasts.
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
