"""Hypothesis strategies for everything that processes send each other, made from the annotations of the messages."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from policies.scaling.detector import Cause
from primitives.backup import StoreOutcome
from primitives.emission import Emission
from primitives.event import Event, event_kinds
from primitives.graph import Edge, InstanceId
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk
from primitives.topology import Topology
from seep.channels import letters
from seep.protocol import messages
from seep.protocol.courier import LetterFrame
from seep.protocol.messages import Data, StateMoved
from seep.protocol.view import Incarnation, View
from tests.strategies import slot_sets, topologies

#: Every type of message there is.
MESSAGES = [
    kind
    for module in (messages, letters)
    for kind in vars(module).values()
    if getattr(kind, "__module__", "") == module.__name__
]

names = st.text(min_size=1, max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)
edges = st.builds(Edge, names, names, st.integers(0, 3))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Columns of several kinds, slices and nulls among them."""
    rows = draw(st.integers(0, 5))
    numbers_column = pa.array(draw(st.lists(st.none() | numbers, min_size=rows, max_size=rows)), pa.int64())
    words = pa.array(draw(st.lists(st.none() | st.text(max_size=4), min_size=rows, max_size=rows)), pa.string())
    nested = pa.array([[i] * i for i in range(rows)], pa.list_(pa.int32()))
    batch = pa.record_batch({"n": numbers_column, "w": words, "d": words.dictionary_encode(), "l": nested})
    return batch.slice(draw(st.integers(0, rows)))


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    keys = draw(st.lists(st.integers(0, 99), unique=True, max_size=5))
    rows = pa.record_batch({"key": pa.array(keys, pa.int64()), "sum": pa.array(range(len(keys)), pa.int64())})
    return Chunk(
        draw(names), draw(st.integers(0, 9)), 3, draw(slot_sets(3)), ("key",), ("key",), rows, rows.select(["key"])
    )


@st.composite
def file_chunks(draw: st.DrawFn) -> FileChunk:
    """Small files, and some that are parts of the message of their own."""
    like = draw(chunks())
    like = replace(like, rows=like.rows.slice(0, 0), deleted=like.deleted.slice(0, 0))
    contents = draw(st.dictionaries(st.from_regex(r"[a-z0-9_]{1,8}\.sst", fullmatch=True), st.binary(max_size=9)))
    buffers = {name: pa.py_buffer(content * draw(st.sampled_from([1, 2000]))) for name, content in contents.items()}
    sizes = {"missing.sst": 7} | {name: buffer.size for name, buffer in buffers.items()}
    counts = np.array(draw(st.lists(st.integers(0, 99), min_size=8, max_size=8)))
    return FileChunk(like, draw(slot_sets(3)), counts, sizes, buffers)


#: What may stand where anything may: the plain data of calls, reports and positions.
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names | numbers | st.tuples(numbers, names), inner, max_size=3)
        | st.frozensets(names | numbers, max_size=3)
    ),
    max_leaves=8,
)

#: Where events are that are not made by a test.
_OURS = ("seep.", "vmpool.")

_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: numbers,
    str: st.text(max_size=8),
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    float: st.floats(allow_nan=False),
    types.NoneType: st.none(),
    Any: anything,
    SlotSet: slot_sets(4),
    Topology: topologies,
    StoreOutcome: st.sampled_from(StoreOutcome),
    Cause: st.sampled_from(Cause),
    Chunk: chunks(),
    FileChunk: file_chunks(),
    Edge: edges,
    pa.RecordBatch: batches(),
}
#: Fields whose annotation says less than what they hold.
_BY_FIELD: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (Data, "batches"): st.dictionaries(st.integers(0, 3), batches(), max_size=2),
    (StateMoved, "chunks"): st.lists(chunks() | file_chunks(), max_size=2).map(tuple),
    (Emission, "outputs"): st.dictionaries(edges, batches(), max_size=2),
    (LetterFrame, "body"): st.deferred(lambda: letters | anything),
}


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Event:
        return st.one_of([_events(kind) for kind in event_kinds().values() if kind.__module__.startswith(_OURS)])
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    if isinstance(hint, TypeVar):
        return anything
    if origin in (Union, types.UnionType):
        return st.one_of([of(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, arguments))
    if origin is Mapping:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=2)
    if origin is frozenset:
        return st.frozensets(of(arguments[0]), max_size=3)
    return _records(origin or hint)


def _records(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    if is_dataclass(kind) and any(field.kw_only for field in fields(kind)):
        return st.builds(kind, **{field.name: of(hints[field.name]) for field in fields(kind)})
    wanted = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    return st.builds(
        kind, *(_BY_FIELD[kind, name] if (kind, name) in _BY_FIELD else of(hints[name]) for name in wanted)
    )


def _events(kind: type[Event]) -> st.SearchStrategy[Event]:
    return _records(kind)


letters = st.one_of([st.deferred(lambda kind=kind: of(kind)) for kind in MESSAGES])
frames = of(LetterFrame)
incarnations = of(Incarnation)


def comparable(value: Any) -> Any:
    """A form in which values are equal just if they are the same in type and content."""
    if isinstance(value, View):
        return View, comparable(
            (value.version, value.topology, value.placement, value.nodes, value.vms, value.cut, value.leaving)
        )
    if isinstance(value, Mapping):
        return dict, {key: comparable(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value), [comparable(item) for item in value]
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), [comparable(getattr(value, field.name)) for field in fields(value)]
    return type(value), value


SENDER, RECEIVER = Incarnation(InstanceId("count", 2), 1), Incarnation(InstanceId("sink", 0), 3)
