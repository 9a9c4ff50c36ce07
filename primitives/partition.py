"""The three partitions of SEEP: processing state by slot, routing state by owner, buffer state by receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from primitives.checkpoint import Checkpoint
from primitives.emission import Batches, Emission
from primitives.errors import InternalError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Arrival, Topology, Version, edges_between

Batch = TypeVar("Batch")


def partition_processing_state(
    checkpoint: Checkpoint, parts: Mapping[InstanceId, SlotSet]
) -> dict[InstanceId, Checkpoint]:
    """Cuts a full checkpoint by slot, one full checkpoint for each new instance.

    The part of the owner itself keeps β and whatever no other part takes. Laws: parts are disjoint and cover;
    merging them gives the whole.
    """
    if checkpoint.owner not in parts:
        raise InternalError(
            f"{checkpoint.owner} is partitioned without a part for itself, so its buffer state would be lost"
        )
    given = SlotSet.empty()
    for instance, slots in parts.items():
        if instance != checkpoint.owner:
            if not slots.isdisjoint(given):
                raise InternalError(f"slots {slots & given} of {checkpoint.owner} are given to two new instances")
            given |= slots
    cut = {i: _part(checkpoint, i, slots & checkpoint.slots) for i, slots in parts.items() if i != checkpoint.owner}
    return {checkpoint.owner: _kept(checkpoint, checkpoint.slots - given), **cut}


def partition_routing_state(
    topology: Topology, operator: str, parts: Mapping[int, SlotSet], first: int, arrival: Arrival
) -> Topology:
    """Returns the topology in which rows of the given slots go to the given instances from epoch `first` on."""
    assignment = topology.at(operator, first).moved(parts)
    return topology.amended(operator, Version(first, assignment, arrival))


def partition_buffer_state(
    emission: Emission[Batch],
    topology: Topology,
    epoch: int,
    sender: InstanceId,
    receiver: InstanceId,
    batches: Batches[Batch],
) -> dict[int, Batch]:
    """Returns a receiver's share of an epoch's output, by input port.

    Output is not partitioned in advance: owners are looked up in the topology of the batch's own epoch, when it is
    sent.
    """
    assignment = topology.at(receiver.operator, epoch)
    share: dict[int, Batch] = {}
    for edge in edges_between(topology.graph, sender.operator, receiver.operator):
        if (whole := emission.outputs.get(edge)) is not None:
            mine = batches.split(edge, whole, assignment).get(receiver.index)
            if mine is not None:
                share[edge.port] = mine
    return share


def _kept(checkpoint: Checkpoint, slots: SlotSet) -> Checkpoint:
    return replace(checkpoint, slots=slots, state=tuple(chunk.select(slots) for chunk in checkpoint.state))


def _part(checkpoint: Checkpoint, instance: InstanceId, slots: SlotSet) -> Checkpoint:
    bare = replace(_kept(checkpoint, slots), owner=instance, buffer=(), trimmed=checkpoint.epoch)
    return replace(bare, incarnation=0, serial=-1)  # ordered before any checkpoint that the new instance will take
