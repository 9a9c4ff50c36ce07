"""Queries of parts of a run about a manager. Each is asked on the event loop, so that nothing changes meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment, Topology
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.replication import BackupCopy


class CutOutlook(NamedTuple):
    """The base of the next cut, and the slots that it must contain."""

    complete_epoch: int | None  #: epoch of the last complete cut of this run
    slots: Mapping[str, tuple[SlotSet, ...]]  #: by operator: the slots of each instance


def live_nodes(manager: Manager) -> frozenset[str]:
    return frozenset(manager.nodes)


def staying_nodes(manager: Manager) -> list[str]:
    """Live nodes that are not about to leave, oldest first."""
    return sorted(manager.nodes.keys() - manager.roster.leaving, key=lambda name: int(name[1:]))


def placement(manager: Manager) -> dict[InstanceId, str]:
    """Returns the node of each instance."""
    return {instance: seat.node for instance, seat in manager.placement.items()}


def latest_assignment(manager: Manager, operator: str) -> Assignment:
    """Returns the owners of slots after all announced plans have taken effect."""
    return manager.topology.history[operator][-1].assignment


def topology(manager: Manager) -> Topology:
    """Returns who owns which slots, now and after announced plans; the value does not change."""
    return manager.topology


def backup_of(manager: Manager, owner: InstanceId) -> BackupCopy | None:
    """Returns the backup that an instance would be restored from, if there is one."""
    return manager.backups.get(owner)


def safe_epoch(manager: Manager, operator: str) -> int:
    """Returns the epoch up to which all instances of the operator are safe."""
    return min(manager.safe.of(instance) for instance in manager.placement if instance.operator == operator)


def is_ending(manager: Manager) -> bool:
    """Whether the input is to end, or has."""
    return manager.ending


def final_epoch(manager: Manager) -> int | None:
    """Returns the last epoch of the query; None while it is not known."""
    return manager.final


def cut_waits_for(manager: Manager) -> str | None:
    """Describes what the current cut waits for; None if there is no cut."""
    return manager.cuts.waits_for()


def cut_outlook(manager: Manager) -> CutOutlook:
    slots = {o: tuple(latest_assignment(manager, o).parts.values()) for o in manager.topology.history}
    return CutOutlook(manager.cuts.complete_epoch, slots)


def home_of(manager: Manager, source: str, slot: int) -> str | None:
    """Returns the node of the instance that owns a slot by the latest plan."""
    owner = InstanceId(source, int(latest_assignment(manager, source).owners[slot]))
    return manager.placement[owner].node if owner in manager.placement else None


def oldest_needed(manager: Manager, source: str) -> dict[int, Any]:
    """Returns, for each slot, the first position from which an instance may have to read again."""
    found: dict[int, Any] = {}
    for instance in manager.placement:
        if instance.operator == source:
            positions, _ = manager.log.after(instance, manager.safe.trimmed[instance])
            for slot, position in positions.items():
                if slot not in found or (position[0] or [0]) < (found[slot][0] or [0]):
                    found[slot] = position
    return found


def positions_behind(manager: Manager, source: InstanceId, sink: InstanceId) -> Mapping[int, Any]:
    """Returns the positions of a source after the last epoch that the sink has committed."""
    return manager.log.after(source, manager.safe.of(sink))[0]
