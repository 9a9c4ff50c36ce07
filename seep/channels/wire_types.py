"""The types that can be sent: for each, its fields as plain values, and a checked construction from them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

import vmpool.events as pool_events
from policies.scaling.detector import Cause
from primitives.backup import StoreOutcome
from primitives.checkpoint import Checkpoint
from primitives.emission import Emission
from primitives.event import Event, event_kinds
from primitives.graph import Edge, InstanceId, QueryGraph
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk
from primitives.topology import Arrival, Assignment, Topology, Version
from seep.channels import letters
from seep.logs.line import LogLine
from seep.protocol import events as protocol_events
from seep.protocol import messages
from seep.protocol.courier import LetterFrame
from seep.protocol.cuts import Cut, CutPart
from seep.protocol.view import Incarnation, Seat, View
from seep.record import events as run_events
from seep.record.histogram import DurationCounts
from seep.record.reports import (
    BulkTransfer,
    HandedPart,
    InstanceFigures,
    LetterSample,
    NodeReport,
    Resources,
    SlotRows,
)
from seep.record.slots.counts import HottestSlot
from seep.record.status import CheckpointStatus, InstanceStatus, NodeStatus, OpenDecision, OperatorStatus, Status
from seep.record.totals import HandedTotals, InstanceTotals, RunTotals, SourceTotals


class WireType(NamedTuple):
    """The conversion of values of one type to fields and back."""

    type: type
    fields: Callable[[Any], Iterable[Any]]
    make: Callable[[list[Any]], Any]  #: raises any exception if the fields are wrong


class BatchPlace(NamedTuple):
    """A placeholder for a record batch: the index of its buffer in the message."""

    place: int


class KeptBytes(NamedTuple):
    """A placeholder for a large buffer, in the same way; smaller ones arrive as bytes."""

    place: int


Check = Callable[[Any], bool]


# -- records: fields checked by their annotations ----------------------------------------------------------------------


def _record(kind: type) -> WireType:
    """Returns the conversion of a NamedTuple or a dataclass."""
    hints = get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        # Fields that are not arguments of a dataclass are computed by it.
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        names = kind._fields  # type: ignore[attr-defined]
    checks = [_check_of(hints[name]) for name in names]

    def fields(value: Any) -> list[Any]:
        return [getattr(value, name) for name in names]

    def make(items: list[Any]) -> Any:
        if len(items) != len(checks):
            raise ValueError(f"{kind.__name__} has {len(checks)} fields, not {len(items)}")
        for place, check in enumerate(checks):
            if not check(items[place]):
                raise ValueError(f"{kind.__name__}.{names[place]} cannot be a {type(items[place]).__name__}")
        return kind(**dict(zip(names, items, strict=True))) if is_by_name else kind(*items)

    is_by_name = dataclasses.is_dataclass(kind) and any(field.kw_only for field in dataclasses.fields(kind))
    return WireType(kind, list if issubclass(kind, tuple) else fields, make)


def _check_of(hint: Any) -> Check:
    """Returns a check of values by an annotation, for the annotations that records use."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return _anything
    if origin in (Union, types.UnionType):
        return _any_of([_check_of(argument) for argument in arguments])
    if origin is tuple:
        return _tuple_of(arguments)
    if origin is Mapping:
        return _mapping_of(*map(_check_of, arguments))
    if origin is frozenset:
        return _frozenset_of(_check_of(arguments[0]))
    return _instance_of(origin or hint)


def _anything(_: Any) -> bool:
    return True


def _any_of(checks: Sequence[Check]) -> Check:
    return lambda value: any(check(value) for check in checks)


def _instance_of(kind: type) -> Check:
    if kind is int:
        return lambda value: type(value) is int
    if kind is float:
        return lambda value: type(value) in (float, int)
    return lambda value: isinstance(value, kind)


def _tuple_of(hints: Sequence[Any]) -> Check:
    if hints[-1] is Ellipsis:
        each = _check_of(hints[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    checks = [_check_of(hint) for hint in hints]
    return lambda value: (
        type(value) is tuple
        and len(value) == len(checks)
        and all(check(item) for check, item in zip(checks, value, strict=True))
    )


def _mapping_of(key: Check, item: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(key(k) and item(v) for k, v in value.items())


def _frozenset_of(each: Check) -> Check:
    return lambda value: isinstance(value, frozenset) and all(map(each, value))


# -- values with a compact form ----------------------------------------------------------------------------------------


def _slots_fields(slots: SlotSet) -> list[Any]:
    return [np.array(slots.runs(), np.uint32).tobytes()]


def _slots_made(items: list[Any]) -> SlotSet:
    (runs,) = items
    return SlotSet.from_json(np.frombuffer(runs, np.uint32).reshape(-1, 2).tolist())


#: Fields -> the assignment made from them, while it is in use.
_ASSIGNMENTS: WeakValueDictionary[tuple[int, bytes, bytes], Assignment] = WeakValueDictionary()


def _assignment_fields(assignment: Assignment) -> list[Any]:
    starts, owners = assignment.runs
    return [assignment.slot_bits, starts.tobytes(), owners.tobytes()]


def _assignment_made(items: list[Any]) -> Assignment:
    """Returns the same object while it is in use, because each view contains all assignments, which cache results."""
    slot_bits, starts, owners = items
    known = _ASSIGNMENTS.get((slot_bits, starts, owners))
    if known is None:
        begins, size = np.frombuffer(starts, np.int32), len(SlotSet.full(slot_bits))
        known = Assignment(np.repeat(np.frombuffer(owners, np.int32), np.diff(begins, append=size)))
        _ASSIGNMENTS[slot_bits, starts, owners] = known
    return known


def _version_fields(version: Version) -> list[Any]:
    return [version.first, version.assignment, version.arrival.value]


def _version_made(items: list[Any]) -> Version:
    first, assignment, arrival = items
    if type(first) is not int or not isinstance(assignment, Assignment):
        raise ValueError("a version is an epoch and an assignment")
    return Version(first, assignment, Arrival(arrival))


def _topology_made(items: list[Any]) -> Topology:
    graph, history = items
    if not isinstance(graph, QueryGraph) or not _HISTORY(history):
        raise ValueError("a topology is a graph and versions of its operators")
    return Topology(graph, history)


def _file_chunk_fields(chunk: FileChunk) -> list[Any]:
    """Returns the fields without the links, which are to files of this process."""
    return [chunk.like, chunk.slots, pa.py_buffer(chunk.rows_in_slot), chunk.sizes, chunk.contents]


def _file_chunk_made(items: list[Any]) -> FileChunk:
    like, slots, rows, sizes, contents = items
    if not isinstance(like, Chunk) or not isinstance(slots, SlotSet) or not _SIZES(sizes) or not _CONTENTS(contents):
        raise ValueError("a chunk of files is a chunk without rows, slots, how many rows they have, sizes and contents")
    buffers = {name: pa.py_buffer(content) for name, content in contents.items()}
    return FileChunk(like, slots, np.frombuffer(rows, np.int64), sizes, buffers)


_SIZES, _CONTENTS = _check_of(Mapping[str, int]), _check_of(Mapping[str, pa.Buffer | bytes])
_HISTORY = _check_of(Mapping[str, tuple[Version, ...]])

#: The modules of events that all processes know, so that each has the same list of kinds.
_EVENTS = [module.__name__ for module in (protocol_events, run_events, pool_events)]

#: Kinds of events that all processes know; they share one tag, because there are more kinds than tags.
_EVENT_RECORDS = {kind: _record(event) for kind, event in event_kinds().items() if event.__module__ in _EVENTS}


def _event_fields(event: Event) -> list[Any]:
    return [event.kind, *_EVENT_RECORDS[event.kind].fields(event)]


def _event_made(items: list[Any]) -> Any:
    kind, *fields = items
    return _EVENT_RECORDS[kind].make(fields)


#: All types with a tag; the tag is the place in this list, so that both ends must be of the same version of `seep`.
TYPES: list[WireType] = [
    WireType(tuple, lambda value: value, tuple),
    WireType(frozenset, list, frozenset),
    WireType(SlotSet, _slots_fields, _slots_made),
    WireType(StoreOutcome, lambda stored: [stored.value], lambda items: StoreOutcome(*items)),
    WireType(Assignment, _assignment_fields, _assignment_made),
    WireType(Version, _version_fields, _version_made),
    WireType(QueryGraph, lambda graph: [graph.to_json()], lambda items: QueryGraph.from_json(*items)),
    WireType(FileChunk, _file_chunk_fields, _file_chunk_made),
    WireType(Topology, lambda topology: [topology.graph, topology.history], _topology_made),
    *map(
        _record,
        (
            BatchPlace,
            KeptBytes,
            InstanceId,
            Edge,
            Incarnation,
            Seat,
            Cut,
            CutPart,
            View,
            LetterFrame,
            Chunk,
            Checkpoint,
            Emission,
        ),
    ),
    *(_record(kind) for kind in vars(messages).values() if getattr(kind, "__module__", "") == messages.__name__),
    WireType(Cause, lambda cause: [cause.value], lambda items: Cause(*items)),
    WireType(Event, _event_fields, _event_made),
    *map(_record, (HandedPart, SlotRows, LetterSample, InstanceFigures, Resources, BulkTransfer, NodeReport, LogLine)),
    *map(_record, (InstanceTotals, SourceTotals, HandedTotals, DurationCounts, RunTotals)),
    *map(_record, (HottestSlot, OpenDecision, CheckpointStatus, InstanceStatus, OperatorStatus, NodeStatus, Status)),
    *map(_record, (*get_args(letters.FromNode), *get_args(letters.ToNode))),
]
TAG_OF: dict[type, int] = {kind.type: code for code, kind in enumerate(TYPES)}
TAG_OF |= dict.fromkeys((record.type for record in _EVENT_RECORDS.values()), TAG_OF[Event])
