"""Queries: what parts of a run want to know of a manager. Each is asked on the event loop, where nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.replication import BackupCopy


class CutOutlook(NamedTuple):
    """What the next cut would build on, and what it would have to have."""

    complete_epoch: int | None  #: of the last complete cut of this run
    slots: Mapping[str, tuple[SlotSet, ...]]  #: by operator, of each instance that will own any


def live_nodes(manager: Manager) -> frozenset[str]:
    return frozenset(manager.nodes)


def staying_nodes(manager: Manager) -> list[str]:
    """Live nodes that are not about to leave, oldest first."""
    return sorted(manager.nodes.keys() - manager.roster.leaving, key=lambda name: int(name[1:]))


def placement(manager: Manager) -> dict[InstanceId, str]:
    """Instance -> the node that it lives on."""
    return {instance: seat.node for instance, seat in manager.placement.items()}


def latest_assignment(manager: Manager, operator: str) -> Assignment:
    """Who owns which slots when all that is announced has taken effect."""
    return manager.topology.history[operator][-1].assignment


def backup_of(manager: Manager, owner: InstanceId) -> BackupCopy | None:
    """The backup that an instance is restored from, if there is one."""
    return manager.backups.get(owner)


def safe_epoch(manager: Manager, operator: str) -> int:
    """All instances of the operator are safe up to this epoch."""
    return min(manager.safe.of(instance) for instance in manager.placement if instance.operator == operator)


def is_ending(manager: Manager) -> bool:
    """Whether the input is to end, or has."""
    return manager.ending


def final_epoch(manager: Manager) -> int | None:
    """The last epoch of the query; None while that is not known."""
    return manager.final


def cut_waits_for(manager: Manager) -> str | None:
    """What the cut under way still lacks, in words; None if there is none."""
    return manager.cuts.waits_for()


def cut_outlook(manager: Manager) -> CutOutlook:
    slots = {o: tuple(latest_assignment(manager, o).parts.values()) for o in manager.topology.history}
    return CutOutlook(manager.cuts.complete_epoch, slots)


def home_of(manager: Manager, source: str, slot: int) -> str | None:
    """The node of the instance that owns a slot from some time on."""
    owner = InstanceId(source, int(latest_assignment(manager, source).owners[slot]))
    return manager.placement[owner].node if owner in manager.placement else None


def oldest_needed(manager: Manager, source: str) -> dict[int, Any]:
    """For each slot, the first position that an instance may be asked to read on from."""
    found: dict[int, Any] = {}
    for instance in manager.placement:
        if instance.operator == source:
            positions, _ = manager.log.after(instance, manager.safe.trimmed[instance])
            for slot, position in positions.items():
                if slot not in found or (position[0] or [0]) < (found[slot][0] or [0]):
                    found[slot] = position
    return found


def positions_behind(manager: Manager, source: InstanceId, sink: InstanceId) -> Mapping[int, Any]:
    """How far the source had been read in the last epoch that the sink has committed."""
    return manager.log.after(source, manager.safe.of(sink))[0]
