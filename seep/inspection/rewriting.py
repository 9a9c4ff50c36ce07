"""Rewrites state: makes a new savepoint from a stored checkpoint with a user's function."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from formats.avro_file import Compression
from formats.manifest import Component, ContainerState, Manifest
from formats.persist import persist_state
from primitives.checkpoint import Checkpoint
from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from seep.inspection.container import StoredContainer
from seep.inspection.listing import Storage, catalogue_in
from seep.inspection.stored import LATEST, Stored
from seep.storage.attempt import Attempt

#: (operator, container, all its rows) -> the new rows; the same table object leaves them unchanged.
Function: TypeAlias = Callable[[str, str, pa.Table], pa.Table]


def rewrite(
    storage: Storage,
    query: str,
    function: Function,
    checkpoint: int | str = LATEST,
    *,
    operators: Collection[str] | None = None,
    codec: Compression = Compression.NONE,
) -> int:
    """Makes a savepoint from a checkpoint, with its state changed by a function; returns the savepoint's number.

    The function is called for each container, with all its stored rows (see `unpacked` and `packed`). It may change,
    add and remove rows, but not columns; rows are put into the slots of their keys. Unchanged containers are not
    copied: the savepoint refers to the same blobs.

    The checkpoint is not changed. A current run of the query is fenced, as by a new run. The savepoint is the newest
    checkpoint, so `latest` means it from then on. It needs memory for some copies of the largest container.
    """
    with Stored.open(storage, query, checkpoint) as stored:
        for operator in operators or ():
            stored.component(operator)
        writer = catalogue_in(stored.store, query).enter(f"rewrite of checkpoint {stored.manifest.id}")
        with writer.begin([stored.manifest.id]) as attempt:
            made = {
                name: component
                if operators is not None and name not in operators
                else _component(stored, name, function, attempt, codec)
                for name, component in stored.manifest.components.items()
            }
            attempt.commit(_manifest(stored.manifest, attempt.id, made, writer.generation).to_json())
    return attempt.id


def _manifest(source: Manifest, id: int, components: dict[str, Component], generation: int) -> Manifest:
    return source.model_copy(
        update={
            "id": id,
            "created": time.time(),
            "savepoint": True,
            "generation": generation,
            "components": components,
            "notes": source.notes | {"rewritten_from": source.id},
        }
    )


def _component(
    stored: Stored, operator: str, function: Function, attempt: Attempt[Manifest], codec: Compression
) -> Component:
    component = stored.component(operator)
    containers = {name: _container(stored, operator, name, function, attempt, codec) for name in component.containers}
    return Component(**{**dict(component), "containers": containers})


def _container(
    stored: Stored, operator: str, name: str, function: Function, attempt: Attempt[Manifest], codec: Compression
) -> ContainerState:
    container, component = stored.container(operator, name), stored.component(operator)
    whole = container.chunk()
    given = pa.Table.from_batches([whole.rows])
    made = _made(function, container, given)
    if made is given:
        return component.containers[name]
    chunk = replace(whole, rows=_rows(made, container))
    return _written(chunk, operator, stored.manifest.epoch, attempt, codec)


def _made(function: Function, container: StoredContainer, given: pa.Table) -> pa.Table:
    named = getattr(function, "__name__", repr(function))
    try:
        made = function(container.operator, container.name, given)
    except Exception as reason:  # any error of the user's function
        raise UserError(
            f"{named} failed with {_of(container)}: {type(reason).__name__}: {reason}; there is no new savepoint"
        ) from reason
    if not isinstance(made, pa.Table):
        raise UserError(
            f"{named} returned {type(made).__name__} for {_of(container)}; return a pyarrow.Table, the one it was "
            "given to leave all as it is"
        )
    return made


def _of(container: StoredContainer) -> str:
    return f"state {container.name!r} of operator {container.operator!r}"


# --- checks -----------------------------------------------------------------------------------------------------------


def _rows(made: pa.Table, container: StoredContainer) -> pa.RecordBatch:
    """Returns the function's rows in the form in which a container writes them."""
    _check_schema(made.schema, container)
    columns = {name: _joined(made.column(name)) for name in container.schema.names}
    rows = pa.RecordBatch.from_arrays([*columns.values()], schema=container.schema)
    columns |= dict(zip(container.like.keys, container.normal_keys(rows), strict=True))
    rows = pa.RecordBatch.from_arrays([*columns.values()], schema=container.schema)
    _check_distinct(rows, container)
    return rows


def _joined(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def _check_schema(made: pa.Schema, container: StoredContainer) -> None:
    declared = {field.name: field.type for field in container.schema}
    found = dict(zip(made.names, made.types, strict=True))
    if len(made) != len(found) or found != declared:
        raise UserError(
            f"{_of(container)} has the columns {_columns(declared)}, and was rewritten with {_columns(found)}: keep "
            "columns and types; to change them, let the operator migrate its state"
        )


def _columns(types: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in types.items()) or "none"


def _check_distinct(rows: pa.RecordBatch, container: StoredContainer) -> None:
    identity = list(container.like.identity)
    names = [f"k{place}" for place in range(len(identity))]
    keys = pa.Table.from_batches([rows.select(identity)]).rename_columns(names)
    counts = keys.group_by(names, use_threads=False).aggregate([([], "count_all")])
    if len(counts) == len(rows):
        return
    twice = counts.filter(pa.compute.greater(counts["count_all"], 1)).slice(0, 1).to_pylist()[0]
    values = ", ".join(f"{name}={twice[short]!r}" for name, short in zip(identity, names, strict=True))
    raise UserError(f"{_of(container)} was rewritten with {twice['count_all']} rows of {values}; it can have only one")


# --- writing ----------------------------------------------------------------------------------------------------------


def _written(chunk: Chunk, operator: str, epoch: int, attempt: Attempt[Manifest], codec: Compression) -> ContainerState:
    """Writes all slots to one blob, as if one instance had them."""
    owner, slots = InstanceId(operator, 0), SlotSet.full(chunk.slot_bits)
    if chunk.replaced != slots:
        raise InternalError(f"all of state {chunk.name!r} was to be read, and it is {chunk.replaced}")
    checkpoint = Checkpoint(owner, 0, 0, epoch, None, slots, (chunk,), (), trimmed=epoch)

    def put(name: str, parts: Sequence[Any]) -> str:
        return attempt.put_blob(operator, name, parts)

    return persist_state(checkpoint, put, codec, slot_bits=chunk.slot_bits).containers[chunk.name]
