"""Moves slots from instances with too much work to others until no move improves the layout.

A layout is judged by all windows at once, each with its weight, as if it had been used in them. So earlier hotspots
still count: a hotspot that moves around ends up divided over all instances, and no moves have to follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.balance.loads import Numbers, by_instance
from primitives.kernels import kernel

#: Number of receivers that are tried for each giver, emptiest first.
_RECEIVERS = 4


class SlotTransfer(NamedTuple):
    """Slots that move from one instance to another."""

    giver: int
    receiver: int
    slots: NDArray[np.int64]


@dataclass(slots=True)
class SlotLayout:
    """An assignment of slots, and the load that it would have caused in each window. Instances are numbered from 0."""

    work: Numbers  #: work of each slot in each window
    weights: Numbers  #: weights of the windows; their sum is 1
    owners: NDArray[np.int64]
    loads: Numbers  #: load of each instance in each window

    @classmethod
    def of(cls, work: Numbers, weights: Numbers, owners: NDArray[np.int64]) -> SlotLayout:
        return cls(work, weights, owners.copy(), by_instance(work, owners, int(owners.max()) + 1))

    @property
    def means(self) -> Numbers:
        """The mean load of instances in each window."""
        means: Numbers = self.loads.mean(axis=1)
        return means

    @property
    def fullest(self) -> float:
        """The highest load of an instance, averaged over the windows: it limits throughput."""
        return float(self.weights @ self.loads.max(axis=1))

    @property
    def unevenness(self) -> float:
        """The sum of squared loads: unlike `fullest`, it also falls if one of several full instances gets less."""
        return float(self.weights @ (self.loads**2).sum(axis=1))

    def after(self, transfer: SlotTransfer) -> SlotLayout:
        owners, loads = self.owners.copy(), self.loads.copy()
        owners[transfer.slots] = transfer.receiver
        moved = self.work[:, transfer.slots].sum(axis=1)
        loads[:, transfer.giver] -= moved
        loads[:, transfer.receiver] += moved
        return SlotLayout(self.work, self.weights, owners, loads)


def levelled(layout: SlotLayout, movable: NDArray[np.bool_], enough: float, most: int) -> SlotLayout:
    """Returns the layout after transfers of at most `most` of the movable slots.

    Each transfer lowers the unevenness, so none only moves the problem. Instances with at most `enough` times the mean
    give nothing.
    """
    for _ in range(4 * layout.loads.shape[1]):
        better = next((each for each in _improvements(layout, movable, enough, most)), None)
        if better is None:
            break
        transfer, layout = better
        most -= len(transfer.slots)
    return layout


def _improvements(
    layout: SlotLayout, movable: NDArray[np.bool_], enough: float, most: int
) -> Iterator[tuple[SlotTransfer, SlotLayout]]:
    for transfer in _transfers(layout, movable, enough):
        transfer = transfer._replace(slots=transfer.slots[:most])
        after = layout.after(transfer)
        if len(transfer.slots) and after.unevenness < layout.unevenness:
            yield transfer, after


def _transfers(layout: SlotLayout, movable: NDArray[np.bool_], enough: float) -> Iterator[SlotTransfer]:
    """Returns transfers to try, from the most overloaded instances first.

    Givers and receivers are compared in the windows in which the giver has too much.
    """
    means = layout.means[:, None]
    too_much = layout.weights[:, None] * np.where(layout.loads > enough * means, layout.loads - means, 0.0)
    for giver in np.argsort(-too_much.sum(axis=0), kind="stable"):
        if not too_much[:, giver].any():
            return
        focus = too_much[:, giver] / too_much[:, giver].sum()
        own = np.flatnonzero((layout.owners == giver) & movable)
        for receiver in np.argsort(focus @ layout.loads, kind="stable")[:_RECEIVERS]:
            order = own[_most_gained_first(layout, giver, receiver, own)]
            for chosen in _choices(layout, giver, receiver, order, focus):
                yield SlotTransfer(int(giver), int(receiver), chosen)


def _choices(
    layout: SlotLayout, giver: int, receiver: int, slots: NDArray[np.int64], focus: Numbers
) -> Iterator[NDArray[np.int64]]:
    """Returns three choices: as much as keeps both within the mean, half the gap, and the slot with most gain."""
    loads, mean = focus @ layout.loads, float(focus @ layout.means)
    half_the_gap = (loads[giver] - loads[receiver]) / 2
    sizes = focus @ layout.work[:, slots]
    worth_it = _are_worth_it(sizes, half_the_gap)
    for room in (min(loads[giver] - mean, mean - loads[receiver]), half_the_gap):
        yield slots[worth_it][first_fit(sizes[worth_it], room)]
    yield slots[:1]


def _are_worth_it(sizes: Numbers, room: float) -> NDArray[np.bool_]:
    """Returns which slots fit into the room and are not much smaller than the mean of these, so that few move."""
    fit = (sizes > 0) & (sizes <= room)
    mean = sizes[fit].mean() if fit.any() else 0.0
    return fit & (sizes >= mean / 2)


def _most_gained_first(layout: SlotLayout, giver: int, receiver: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the slots ordered by how much the unevenness falls if one of them moves."""
    work = layout.work[:, slots]
    gaps = layout.weights * (layout.loads[:, giver] - layout.loads[:, receiver])
    return np.argsort(layout.weights @ work**2 - gaps @ work, kind="stable")


@kernel
def first_fit(loads: NDArray[np.float64], room: float) -> NDArray[np.bool_]:
    """Takes loads in turn, as long as each fits; returns which are taken. A load of zero is never taken.

    >>> first_fit(np.array([5.0, 9.0, 4.0, 0.0, 2.0]), 11.0).tolist()
    [True, False, True, False, True]
    """
    taken = np.zeros(loads.size, np.bool_)
    for place in range(loads.size):
        if 0.0 < loads[place] <= room:
            taken[place] = True
            room -= loads[place]
    return taken
