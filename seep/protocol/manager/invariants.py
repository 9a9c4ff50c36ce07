"""The rules that the manager keeps between any two calls, as generators of sentences about broken rules.

`Manager.validate` raises them as an InternalError. The first half is cheap. The second half takes longer, or is about
values that change with a view only, so it is checked once for each view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from seep.protocol.manager.plans import Move, Split, union_of
from seep.protocol.manager.replication import is_there

if TYPE_CHECKING:
    from seep.protocol.manager.manager import Manager


def broken_rules(manager: Manager) -> Iterator[str]:
    """Yields the broken rules among those that are cheap enough for a check after every call."""
    yield from _of_epochs(manager)
    yield from _of_homes(manager)
    for split in manager.splits.values():
        yield from _of_split(manager, split)
    pinned = {split.origin for split in manager.splits.values()}
    if manager.safe.pinned != pinned:
        yield f"splits are under way of {_words(pinned)}, and pinned is {_words(manager.safe.pinned)}"


def broken_rules_of_view(manager: Manager) -> Iterator[str]:
    """Yields the broken rules among those that are checked once for each view."""
    yield from _of_nodes(manager)
    yield from _of_slots(manager)
    yield from _of_moves(manager)
    yield from _of_backups(manager)
    yield from _of_what_is_gone(manager)
    yield from _of_trims(manager)


# -- cheap -------------------------------------------------------------------------------------------------------------


def _of_epochs(manager: Manager) -> Iterator[str]:
    if manager.final is not None and manager.ticked > manager.final:
        yield f"epoch {manager.ticked} was opened after the final one, {manager.final}"
    underway = manager.cuts.underway
    if underway is not None and not underway.sealed and underway.cut.epoch <= manager.ticked:
        yield f"epoch {manager.ticked} was opened before all nodes knew of the cut after {underway.cut.epoch}"
    for move in manager.moves.values():
        if not move.sealed and move.first <= manager.ticked:
            yield f"epoch {manager.ticked} was opened before plan {move.plan} for {move.first} was sealed"
        if move.version > manager.version:
            yield f"plan {move.plan} is of view {move.version}, and the newest is {manager.version}"


def _of_homes(manager: Manager) -> Iterator[str]:
    """Checks that instances on no live node are pending, and that none waits for a node if there is one."""
    nodes, pending = manager.nodes, manager.pending
    for instance, seat in manager.placement.items():
        if seat.node not in nodes and instance not in pending:
            yield f"{instance} lives on {seat.node}, which is lost, and nothing is done about it"
    for instance in pending:
        if instance not in manager.placement:
            yield f"{instance} waits for a node or a backup, and is no more"
    if manager.homeless and nodes:
        yield f"{_words(manager.homeless)} wait for a node, and {', '.join(sorted(nodes))} are there"


def _of_split(manager: Manager, split: Split) -> Iterator[str]:
    name = f"plan {split.plan}, which splits {split.origin},"
    if split.origin not in manager.placement:
        yield f"{name} is of an instance that is no more"
        return
    if split.origin_is_dead == manager.roster.is_live(split.origin):
        yield f"{name} has its origin as {'dead' if split.origin_is_dead else 'live'}, and it is not"
    if split.holder not in manager.nodes:
        yield f"{name} cuts a backup on {split.holder}, which is lost"
    if not split.restored <= split.standby.keys() <= split.parts.keys():
        parts, standby = _words(split.parts), _words(split.standby)
        yield f"{name} has parts {parts}, stand-bys {standby}, of which {_words(split.restored)} are ready"
    if split.standby and split.epoch is None:
        yield f"{name} has stand-bys before its backup was cut"
    for instance, (identity, node) in split.standby.items():
        seat = manager.placement.get(instance)
        if node not in manager.nodes:
            yield f"{name} has {identity} stand by on {node}, which is lost"
        if identity.instance != instance or (seat is not None and seat.incarnation >= identity.number):
            yield f"{name} has {identity} stand by for {instance}, which lives as {seat}"
        if seat is not None and instance != split.origin:
            yield f"{name} has a part for {instance}, which lives already"


# -- once for each view ------------------------------------------------------------------------------------------------


def _of_nodes(manager: Manager) -> Iterator[str]:
    roster = manager.roster
    for node, version in roster.nodes.items():
        if version > manager.version:
            yield f"{node} has acknowledged view {version}, and the newest is {manager.version}"
    for what, nodes in (("leaving", roster.leaving), ("on a known VM", roster.vms.keys())):
        if gone := set(nodes) - roster.nodes.keys():
            yield f"nodes are {what} that are lost: {', '.join(sorted(gone))}"
    for instance, seat in roster.placement.items():
        upcoming = roster.upcoming(instance)
        if seat.incarnation >= upcoming:
            yield f"{instance} lives as incarnation {seat.incarnation}, and the next would be {upcoming}"


def _of_slots(manager: Manager) -> Iterator[str]:
    """Checks that each slot has an owner at every epoch of the topology, and that each present owner has a node."""
    for operator, history in manager.topology.history.items():
        for version in history:
            if int(version.assignment.owners.min()) < 0:
                yield f"a slot of {operator!r} has no owner from epoch {version.first} on"
        for index in history[-1].assignment.parts:
            if InstanceId(operator, index) not in manager.placement:
                yield f"{InstanceId(operator, index)} owns slots and lives nowhere"


def _of_moves(manager: Manager) -> Iterator[str]:
    moving: dict[str, SlotSet] = {}
    for move in manager.moves.values():
        if not moving.get(move.operator, SlotSet.empty()).isdisjoint(move.slots):
            yield f"plan {move.plan} moves slots of {move.operator!r} that another plan is still moving"
        moving[move.operator] = moving.get(move.operator, SlotSet.empty()) | move.slots
        if not _is_in_force(manager, move):
            yield f"plan {move.plan} is for epoch {move.first}, at which {move.operator!r} has no version"
    for split in manager.splits.values():
        operator, parts = split.origin.operator, list(split.parts.values())
        if operator in moving:
            yield f"{operator!r} is split by plan {split.plan}, and a plan moves slots of it"
        owned = manager.topology.history[operator][-1].assignment.slots_of(split.origin.index)
        if union_of(parts) != owned or sum(map(len, parts)) != len(owned):
            yield f"plan {split.plan} divides other slots than those of {split.origin}"


def _is_in_force(manager: Manager, move: Move) -> bool:
    """Returns whether the topology has the version that the move made, or has forgotten all versions before it."""
    history = manager.topology.history[move.operator]
    return any(version.first == move.first for version in history) or move.first < history[0].first


def _of_backups(manager: Manager) -> Iterator[str]:
    for owner, copy in manager.backups.items():
        if not copy.holders:
            yield f"the backup of {owner} is recorded, and nobody holds it"
        for holder in copy.holders:
            if not is_there(holder, manager.nodes):
                yield f"the backup of {owner} is on {holder}, which is lost"
        if manager.graph.kind(owner.operator) is not Kind.STATEFUL:
            yield f"a backup is recorded of {owner}, which has no state"
    for owner, group in manager.replication.groups.items():
        for node in group:
            if not is_there(node, manager.nodes):
                yield f"{node}, which is lost, is to keep backups of {owner}"


def _of_what_is_gone(manager: Manager) -> Iterator[str]:
    """Checks that nothing is kept for instances that have ended."""
    records = {
        "a safe epoch": manager.safe.known,
        "a backup": manager.backups.keys(),
        "replication": manager.replication.known,
        "a source log": manager.log.known,
        "a mark that it began empty": manager.unsaved,
    }
    for what, known in records.items():
        if gone := set(known) - manager.placement.keys():
            yield f"{what} is kept for {_words(gone)}, and there is no such instance any more"
    if missing := manager.placement.keys() - manager.safe.known:
        yield f"no safe epoch is known of {_words(missing)}"
    standing = {instance for split in manager.splits.values() for instance in split.standby}
    if gone := manager.roster.numbered - manager.placement.keys() - standing:
        yield f"incarnations are numbered of {_words(gone)}, and there is no such instance any more"


def _of_trims(manager: Manager) -> Iterator[str]:
    """Checks that nothing is trimmed that a receiver may still request."""
    for instance in manager.placement:
        if manager.graph.kind(instance.operator) is Kind.SINK:
            continue
        epoch = manager.safe.trimmed[instance]
        for receiver in manager.topology.receivers(instance, epoch):
            safe = manager.safe.of(receiver)
            if safe < epoch:
                yield f"{instance} is trimmed up to {epoch}, and {receiver} is safe up to {safe} only"


def _words(instances: Collection[InstanceId]) -> str:
    return ", ".join(map(str, sorted(instances))) or "nothing"
