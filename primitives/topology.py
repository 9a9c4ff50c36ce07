"""The versioned execution graph: which instance owns which slot of each operator, from which epoch on.

A topology is an immutable value. Every reconfiguration (scale out or in, migration, split from backup) is a new version
of one operator's assignment with a first epoch. A version that moves slots also says where their state comes from. The
node of an instance does not depend on the epoch, and so is not part of it (see `seep.protocol.view`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from primitives.errors import InternalError, UserError
from primitives.graph import Edge, InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet, contiguous_assignment


class Assignment:
    """The owner (instance index) of every slot of one operator: exactly one each, by construction."""

    def __init__(self, owners: npt.ArrayLike) -> None:
        table = np.array(owners, dtype=np.int32)
        if table.ndim != 1 or table.size == 0 or table.size & (table.size - 1):
            raise InternalError(f"an assignment needs an owner for each of 2^k slots, not {table.shape}")
        if table.min() < 0:
            raise InternalError(f"slot {int(np.argmin(table))} has no owner")
        table.flags.writeable = False
        self.owners = table

    @classmethod
    def contiguous(cls, parallelism: int, slot_bits: int) -> Assignment:
        """The initial assignment: instance i owns one run of neighbouring slots."""
        return cls(contiguous_assignment(parallelism, slot_bits))

    @property
    def slot_bits(self) -> int:
        return self.owners.size.bit_length() - 1

    @cached_property
    def table(self) -> tuple[int, ...]:
        """The owners as plain integers, for code that looks up one slot at a time."""
        return tuple(self.owners.tolist())

    @cached_property
    def runs(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns the start of each run of slots with one owner, and the owners.

        >>> [each.tolist() for each in Assignment([0, 0, 5, 0]).runs]
        [[0, 2, 3], [0, 5, 0]]
        """
        starts = np.flatnonzero(np.diff(self.owners, prepend=-1)).astype(np.int32)
        return starts, self.owners[starts]

    @cached_property
    def parts(self) -> Mapping[int, SlotSet]:
        """The slots of each instance that owns any, by instance index."""
        return {int(i): SlotSet(np.flatnonzero(self.owners == i)) for i in np.unique(self.owners)}

    @cached_property
    def sole_owner(self) -> int | None:
        """The only owner, if there is just one: its input needs no split."""
        return next(iter(self.parts)) if len(self.parts) == 1 else None

    def slots_of(self, index: int) -> SlotSet:
        return self.parts.get(index, SlotSet.empty())

    def moved(self, moves: Mapping[int, SlotSet]) -> Assignment:
        """Returns a copy in which each given instance owns the given slots besides those that it keeps."""
        owners = self.owners.copy()
        for index, slots in moves.items():
            if len(slots) and int(slots.array[-1]) >= owners.size:
                raise UserError(
                    f"slot {int(slots.array[-1])} does not exist; the operator has slots 0 to {owners.size - 1}"
                )
            owners[slots.array] = index
        return Assignment(owners)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Assignment) and np.array_equal(self.owners, other.owners)

    def __hash__(self) -> int:
        return hash(self.owners.tobytes())

    def __repr__(self) -> str:
        return f"Assignment({', '.join(f'{i}: {slots!r}' for i, slots in self.parts.items())})"

    def to_json(self) -> dict[str, Any]:
        return {"slot_bits": self.slot_bits, "parts": {str(i): slots.to_json() for i, slots in self.parts.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Assignment:
        owners = np.full(1 << data["slot_bits"], -1, dtype=np.int32)
        for index, runs in data["parts"].items():
            owners[SlotSet.from_json(runs).array] = int(index)
        return cls(owners)


class Arrival(StrEnum):
    """The way in which the state of moved slots reaches its new owner."""

    HANDOVER = "handover"  #: the old owner sends it at the end of the epoch before
    BACKUP = "backup"  #: it was restored from the old owner's backup before the version was made


@dataclass(frozen=True, slots=True)
class Version:
    """An operator's assignment from epoch `first` on, until the next version."""

    first: int
    assignment: Assignment
    arrival: Arrival = Arrival.HANDOVER


class Topology:
    """The history of all operators' assignments; immutable, and queried by epoch."""

    def __init__(self, graph: QueryGraph, history: Mapping[str, tuple[Version, ...]]) -> None:
        self.graph = graph
        self.history: Mapping[str, tuple[Version, ...]] = dict(history)
        for operator in graph.order:
            _check_history(graph, operator, self.history.get(operator, ()))
        self._moves: dict[tuple[str, int], dict[tuple[int, int], SlotSet]] = {}
        self._eras = sorted({e for h in self.history.values() for v in h for e in (v.first, v.first + 1)})
        self._senders: dict[tuple[str, int], tuple[InstanceId, ...]] = {}
        self._receivers: dict[tuple[InstanceId, int], tuple[InstanceId, ...]] = {}

    @classmethod
    def initial(cls, graph: QueryGraph, parallelism: Mapping[str, int] | None = None, first: int = 1) -> Topology:
        """Returns contiguous slots from the first epoch on; one instance unless another number is given."""
        wanted = dict(parallelism or {})
        unknown = set(wanted) - set(graph.operators)
        if unknown:
            raise UserError(
                f"parallelism is given for operators that the query does not have: {', '.join(sorted(unknown))}"
            )
        return cls(
            graph,
            {
                o.name: (Version(first, _spread(o.name, wanted.get(o.name, 1), o.slot_bits)),)
                for o in graph.operators.values()
            },
        )

    # -- at an epoch -----------------------------------------------------------------------------------------------

    def version_at(self, operator: str, epoch: int) -> Version:
        history = self.history[operator]
        if len(history) == 1 or epoch >= history[-1].first:
            return history[-1]
        return history[_place(history, epoch)]

    def at(self, operator: str, epoch: int) -> Assignment:
        """The assignment of an operator's slots at an epoch."""
        return self.version_at(operator, epoch).assignment

    def slots(self, instance: InstanceId, epoch: int) -> SlotSet:
        return self.at(instance.operator, epoch).slots_of(instance.index)

    def owns(self, instance: InstanceId, epoch: int) -> bool:
        return instance.index in self.at(instance.operator, epoch).parts

    def instances(self, operator: str, epoch: int) -> tuple[InstanceId, ...]:
        """The instances that own slots of an operator at an epoch."""
        return tuple(InstanceId(operator, i) for i in self.at(operator, epoch).parts)

    def senders(self, instance: InstanceId, epoch: int) -> tuple[InstanceId, ...]:
        """Returns the instances whose data an owner of slots waits for at an epoch."""
        key = (instance.operator, self._era(epoch))
        known = self._senders.get(key)
        if known is None:
            upstream = self.graph.upstream[instance.operator]
            known = self._senders[key] = tuple(s for operator in upstream for s in self.instances(operator, epoch))
        return known

    def receivers(self, instance: InstanceId, epoch: int) -> tuple[InstanceId, ...]:
        """The instances that need data of an instance at an epoch, or the state of slots that leave it."""
        key = (instance, self._era(epoch))
        known = self._receivers.get(key)
        if known is None:
            downstream = self.graph.downstream[instance.operator] if self.owns(instance, epoch) else ()
            data = (r for operator in downstream for r in self.instances(operator, epoch))
            known = self._receivers[key] = (*data, *self.departures(instance, epoch))
        return known

    def _era(self, epoch: int) -> int:
        """Returns the era of an epoch; epochs of one era have the same senders and receivers.

        An epoch at whose beginning slots move is an era of its own.
        """
        return bisect_right(self._eras, epoch)

    # -- moved slots -------------------------------------------------------------------------------------------------

    def arrivals(self, instance: InstanceId, epoch: int) -> dict[InstanceId, SlotSet]:
        """Returns the slots that an instance gets by handover just before an epoch, by their old owner."""
        moves = self._moves_at(instance.operator, epoch)
        return {
            InstanceId(instance.operator, old): slots for (old, new), slots in moves.items() if new == instance.index
        }

    def departures(self, instance: InstanceId, epoch: int) -> dict[InstanceId, SlotSet]:
        """Returns the slots that leave an instance by handover just before an epoch, by their new owner."""
        moves = self._moves_at(instance.operator, epoch)
        return {
            InstanceId(instance.operator, new): slots for (old, new), slots in moves.items() if old == instance.index
        }

    def boundaries(self, operator: str, after: int = 0) -> tuple[int, ...]:
        """The epochs above `after` from which a new version of the operator holds."""
        return tuple(v.first for v in self.history[operator][1:] if v.first > after)

    def last_epoch(self, instance: InstanceId) -> int | None:
        """Returns the last epoch at which an instance owns anything, or None if no end is known."""
        history = self.history[instance.operator]
        ends = (later.first for v, later in pairwise(history) if instance.index in v.assignment.parts)
        return None if instance.index in history[-1].assignment.parts else max(ends, default=0) - 1

    def all_instances(self) -> tuple[InstanceId, ...]:
        """Every instance that owns slots at any epoch of the history."""
        return tuple(
            InstanceId(o, i)
            for o in self.graph.order
            for i in sorted({i for v in self.history[o] for i in v.assignment.parts})
        )

    def _moves_at(self, operator: str, epoch: int) -> dict[tuple[int, int], SlotSet]:
        history = self.history[operator]
        if len(history) == 1 or not self._keeps_state(operator):
            return {}
        now = self.version_at(operator, epoch)
        if now.first != epoch or now.arrival is not Arrival.HANDOVER or now is history[0]:
            return {}
        if (operator, epoch) not in self._moves:
            self._moves[operator, epoch] = _moves(self.at(operator, epoch - 1), now.assignment)
        return self._moves[operator, epoch]

    def _keeps_state(self, operator: str) -> bool:
        return self.graph.kind(operator) in (Kind.STATEFUL, Kind.SOURCE)

    # -- change ------------------------------------------------------------------------------------------------------

    def amended(self, operator: str, version: Version) -> Topology:
        """Returns a copy with one more version of an operator, which may begin in the past, but after all others."""
        history = self.history[operator]
        if version.first <= history[-1].first:
            raise InternalError(
                f"{operator!r} has a version from epoch {history[-1].first} on; one from {version.first} comes too late"
            )
        return Topology(self.graph, {**self.history, operator: (*history, version)})

    def forgotten(self, before: int) -> Topology:
        """Returns a copy with owners from `before` on and moves of slots after it, but nothing earlier."""
        kept = {operator: versions[_place(versions, before) :] for operator, versions in self.history.items()}
        return self if kept == self.history else Topology(self.graph, kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.graph == other.graph and self.history == other.history

    def __hash__(self) -> int:
        return hash((self.graph, tuple(sorted((o, len(h), h[-1].first) for o, h in self.history.items()))))

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph.to_json(),
            "history": {
                o: [[v.first, v.arrival.value, v.assignment.to_json()] for v in h] for o, h in self.history.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Topology:
        history = {
            operator: tuple(
                Version(first, Assignment.from_json(table), Arrival(arrival)) for first, arrival, table in versions
            )
            for operator, versions in data["history"].items()
        }
        return cls(QueryGraph.from_json(data["graph"]), history)


def edges_between(graph: QueryGraph, upstream: str, downstream: str) -> tuple[Edge, ...]:
    """The streams from one operator to another, one per input port."""
    return tuple(edge for edge in graph.outputs[upstream] if edge.downstream == downstream)


def _place(history: tuple[Version, ...], epoch: int) -> int:
    """Returns the index of the version at an epoch; the first version also for epochs before it."""
    return max(bisect_right(history, epoch, key=lambda version: version.first) - 1, 0)


def _spread(operator: str, parallelism: int, slot_bits: int) -> Assignment:
    if not 1 <= parallelism <= 1 << slot_bits:
        raise UserError(
            f"operator {operator!r} cannot have {parallelism} instances: it has {1 << slot_bits} slots ({slot_bits=})"
        )
    return Assignment.contiguous(parallelism, slot_bits)


def _moves(before: Assignment, after: Assignment) -> dict[tuple[int, int], SlotSet]:
    changed = np.flatnonzero(before.owners != after.owners)
    pairs = np.stack([before.owners[changed], after.owners[changed]], axis=1)
    return {
        (int(old), int(new)): SlotSet(changed[(pairs == (old, new)).all(axis=1)])
        for old, new in np.unique(pairs, axis=0)
    }


def _check_history(graph: QueryGraph, operator: str, history: tuple[Version, ...]) -> None:
    if not history:
        raise InternalError(f"operator {operator!r} has no version in the topology")
    slot_bits = graph.operators[operator].slot_bits
    for version in history:
        if version.assignment.slot_bits != slot_bits:
            raise InternalError(
                f"operator {operator!r} has 2^{slot_bits} slots, "
                f"but 2^{version.assignment.slot_bits} in its version from epoch {version.first} on"
            )
    firsts = [version.first for version in history]
    if any(later <= earlier for earlier, later in pairwise(firsts)):
        raise InternalError(f"the versions of {operator!r} do not follow each other: {firsts}")
