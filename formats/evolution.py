"""Evolution: converts stored state for code that has changed, by Avro's rules or by the operator's own function.

Columns may be added with a default, removed, renamed by an alias, and widened; the reader's declaration decides. Other
changes, and changes of meaning, are for the operator's `migrate_state`. Nothing is guessed: state that fits neither way
is refused, with both schemas, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from formats.renaming import renamed
from primitives.errors import SeepError, UserError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk, merge_chunks
from primitives.state.columnar.fixed import CONVERSION_ERRORS

#: An operator's conversion of state: gets the stored version and a full chunk of it, returns the chunk for today's
#: code.
Migrate: TypeAlias = Callable[[int, Chunk], Chunk]

_NO_DEFAULT: Any = object()


class Hint(NamedTuple):
    """A column's declaration for state that was stored without the column, or under another name."""

    default: Any = _NO_DEFAULT
    aliases: tuple[str, ...] = ()


class HintedColumn(NamedTuple):
    """A column's type and its hint, as a container declares them."""

    type: pa.DataType
    hint: Hint


def column(kind: pa.DataType, *, default: Any = _NO_DEFAULT, aliases: Sequence[str] = ()) -> HintedColumn:
    """Declares a column with a `default`, for state that was stored without it, or with `aliases`, its earlier names.

    >>> column(pa.int64(), default=0).hint.default, column(pa.string(), aliases=["word"]).hint.aliases
    (0, ('word',))
    """
    if isinstance(aliases, str):
        raise UserError(f"the aliases of a column are a list of names; write [{aliases!r}]")
    if default is not _NO_DEFAULT:
        _filled(kind, default, 1)
    return HintedColumn(kind, Hint(default, tuple(aliases)))


Columns: TypeAlias = Mapping[str, pa.DataType | HintedColumn]


def types_of(columns: Columns) -> dict[str, pa.DataType]:
    """Returns the types of columns, in the form that containers accept."""
    return {name: given.type if isinstance(given, HintedColumn) else given for name, given in columns.items()}


def hints_of(columns: Columns) -> dict[str, Hint]:
    """Returns the hints of columns, for `resolve`."""
    return {name: given.hint for name, given in columns.items() if isinstance(given, HintedColumn)}


# --- an operator's state ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evolution:
    """An operator's declarations for state that other code has stored."""

    hints: Mapping[str, Mapping[str, Hint]] = field(default_factory=dict)  #: hints of columns, by container
    migrate: Migrate | None = None  #: its `migrate_state`, if any
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)  #: earlier names of containers

    def adapted(self, stored: Sequence[Chunk], declared: Sequence[Chunk], slots: SlotSet) -> tuple[Chunk, ...]:
        """Returns stored chunks of `slots` in a form that the `declared` containers can restore; see `resolve`.

        A container without stored state begins empty. Chunks of other containers are left out: whether that is allowed
        must be checked before (see `check_containers`).
        """
        adapted: list[Chunk] = []
        stored = self.renamed(stored)
        for container in declared:
            mine = [chunk for chunk in stored if chunk.name == container.name]
            hints = self.hints.get(container.name)
            adapted += resolve(mine, container, hints, self.migrate) or [replace(container, replaced=slots)]
        return tuple(adapted)

    def renamed(self, stored: Sequence[Chunk]) -> tuple[Chunk, ...]:
        """Returns stored chunks under the present names of their containers."""
        names = renamed("state", {chunk.name: chunk.name for chunk in stored}, self.aliases)
        now = {old: name for name, old in names.items()}
        return tuple(replace(chunk, name=now[chunk.name]) for chunk in stored)


def check_containers(stored: Sequence[Chunk], declared: Sequence[Chunk], *, allow_dropped: bool = False) -> None:
    """Raises UserError, with both schemas, if undeclared containers are stored and may not be dropped."""
    gone = sorted({chunk.name for chunk in stored} - {chunk.name for chunk in declared})
    if gone and not allow_dropped:
        left = ["stored", *(line for chunk in stored for line in _titled(chunk))]
        right = ["declared", *(line for chunk in declared for line in _titled(chunk))]
        raise UserError(
            f"there is stored state {_named(gone)}, which is not declared: was a container renamed or removed? Name "
            f"the old one among its aliases, or allow its state to be dropped\n{_side_by_side(left, right)}"
        )


# --- a container's state ----------------------------------------------------------------------------------------------


def resolve(
    chunks: Sequence[Chunk],
    declared: Chunk,
    hints: Mapping[str, Hint] | None = None,
    migrate: Migrate | None = None,
) -> tuple[Chunk, ...]:
    """Returns the stored chunks of one container, in order, in a form that the `declared` container can restore.

    `declared` is any chunk of it, such as `container.snapshot(SlotSet.empty())`. If the stored state has a lower
    version, the chunks are merged, so that `migrate` sees each row once. Given an `empty_chunk` of the stored schema,
    it shows in advance whether it will succeed. Raises UserError if it does not, or if the new types hold less than the
    old ones.

    >>> from primitives.state.frame import Frame
    >>> key = {"word": pa.string()}
    >>> old, new = Frame("counts", key, {"n": pa.int32()}), Frame("counts", key, {"count": pa.int64()})
    >>> _ = old.put({"word": ["be"]}, n=2)
    >>> stored = old.snapshot(SlotSet.full(8))
    >>> hints = hints_of({"count": column(pa.int64(), aliases=["n"])})
    >>> new.restore(resolve([stored], new.snapshot(SlotSet.empty()), hints))
    >>> new.to_arrow().to_pylist()
    [{'word': 'be', 'count': 2}]
    """
    if not chunks:
        return ()
    stored = chunks[0]
    if stored.slot_bits != declared.slot_bits:
        raise UserError(
            f"state '{declared.name}' was stored in 2^{stored.slot_bits} slots, and the operator has "
            f"2^{declared.slot_bits}: the number of slots cannot change; set slot_bits to {stored.slot_bits}"
        )
    if stored.version != declared.version:
        chunks = [_migrated(merge_chunks(chunks), declared, migrate)]
    return tuple(_resolved(chunk, declared, hints or {}) for chunk in chunks)


def _migrated(stored: Chunk, declared: Chunk, migrate: Migrate | None) -> Chunk:
    if stored.version > declared.version:
        raise _unfit(stored, declared, "it was stored by later code; run that, or raise the operator's version")
    if migrate is None:
        raise _unfit(stored, declared, "the operator's version was raised; give it a method migrate_state to convert")
    made = _called(migrate, stored)
    if not isinstance(made, Chunk):
        raise UserError(f"migrate_state returned {type(made).__name__} for state '{declared.name}'; return a Chunk")
    if (made.name, made.slot_bits) != (stored.name, stored.slot_bits) or not _slots(made) <= _slots(stored):
        raise UserError(
            f"migrate_state has moved rows of state '{declared.name}' from slots {_slots(stored)} to {_slots(made)}; "
            "a row must stay in its slot, so keep the values of its keys"
        )
    return replace(made, version=declared.version)


def _called(migrate: Migrate, stored: Chunk) -> Any:
    """Returns the result of the user's code, which also gets an empty chunk, to see whether it will succeed."""
    try:
        return migrate(stored.version, stored)
    except SeepError:
        raise
    except Exception as reason:
        raise UserError(
            f"migrate_state failed for state '{stored.name}' of version {stored.version} with {len(stored.rows)} rows: "
            f"{type(reason).__name__}: {reason}"
        ) from reason


def _slots(chunk: Chunk) -> SlotSet:
    return chunk.replaced | SlotSet(chunk.slots_of_rows())


# --- a chunk's columns ------------------------------------------------------------------------------------------------


def _resolved(chunk: Chunk, declared: Chunk, hints: Mapping[str, Hint]) -> Chunk:
    schema = declared.rows.schema
    if chunk.rows.schema.equals(schema) and chunk.keys == declared.keys and chunk.identity == declared.identity:
        return chunk
    try:
        origins = _origins(chunk.rows.schema.names, schema.names, hints)
        _check_identity(chunk, declared, origins)
        identity = pa.schema([schema.field(name) for name in declared.identity])
        return replace(
            chunk,
            keys=declared.keys,
            identity=declared.identity,
            rows=_converted(chunk.rows, schema, origins, hints, declared.identity),
            deleted=_converted(chunk.deleted, identity, origins, hints, declared.identity),
        )
    except _Unfit as reason:
        raise _unfit(chunk, declared, str(reason)) from reason


class _Unfit(Exception):
    """Columns cannot be converted; says why, and what to do."""


def _origins(stored: Sequence[str], declared: Sequence[str], hints: Mapping[str, Hint]) -> dict[str, str | None]:
    """Returns for each declared column its stored one, or None if it is new, by Avro's rules for record fields."""
    return {name: _origin(name, hints.get(name, Hint()), stored, declared) for name in declared}


def _origin(name: str, hint: Hint, stored: Sequence[str], declared: Sequence[str]) -> str | None:
    found = [each for each in (name, *hint.aliases) if each in stored and (each == name or each not in declared)]
    if len(found) > 1:
        raise _Unfit(f"column '{name}' could be any of the stored {found}; say which in migrate_state")
    if not found and hint.default is _NO_DEFAULT:
        raise _Unfit(f"column '{name}' is not in the stored state; give it a default or an alias")
    return found[0] if found else None


def _check_identity(chunk: Chunk, declared: Chunk, origins: Mapping[str, str | None]) -> None:
    """Checks that the same columns identify rows, and that slots stay the same."""
    for what, stored, now in (
        ("keyed", chunk.keys, declared.keys),
        ("told apart", chunk.identity, declared.identity),
    ):
        if tuple(origins[name] for name in now) != stored:
            raise _Unfit(
                f"rows were {what} by {list(stored)}, and are now by {list(now)}; convert them in migrate_state"
            )


def _converted(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    origins: Mapping[str, str | None],
    hints: Mapping[str, Hint],
    identity: Sequence[str],
) -> pa.RecordBatch:
    columns = []
    for declared in schema:
        origin = origins[declared.name]
        if origin is None:
            columns.append(_filled(declared.type, hints[declared.name].default, len(batch)))
        else:
            columns.append(_widened(batch.column(origin), declared, exact=declared.name in identity))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _filled(kind: pa.DataType, default: Any, rows: int) -> pa.Array:
    try:
        return pa.repeat(pa.scalar(default, kind), rows)
    except CONVERSION_ERRORS as reason:
        raise UserError(f"{default!r} cannot be the default of a column of type {kind}: {reason}") from reason


def _widened(column: pa.Array, field: pa.Field, *, exact: bool) -> pa.Array:
    if column.type == field.type:
        return column
    if not _promotes(column.type, field.type, exact=exact):
        raise _Unfit(
            f"column '{field.name}' was {column.type}, which does not become {field.type} by itself; declare it as "
            "before, or convert it in migrate_state"
        )
    try:
        return column.cast(field.type, safe=exact or not pa.types.is_integer(column.type))  # only numbers are rounded
    except pa.ArrowException as reason:
        raise _Unfit(f"column '{field.name}' does not become {field.type}: {reason}") from reason


# --- types ------------------------------------------------------------------------------------------------------------


def _promotes(stored: pa.DataType, declared: pa.DataType, *, exact: bool) -> bool:
    """Whether Avro promotes one type to the other: int to long to float to double, and text to bytes and back.

    A key must keep its exact value, which decides its row and slot; other integers may be rounded.
    """
    if {stored, declared} <= _TEXTS:
        return True
    if pa.types.is_floating(declared):
        return _fits_float(stored, declared, exact=exact)
    if pa.types.is_decimal128(declared):
        return _fits_decimal(stored, declared)
    if not (pa.types.is_integer(stored) and pa.types.is_integer(declared)):
        return False
    return _range(declared)[0] <= _range(stored)[0] and _range(stored)[1] <= _range(declared)[1]


#: Avro has one type of text and one of bytes.
_TEXTS = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}

_FLOAT_DIGITS = {16: 11, 32: 24, 64: 53}  # precision in binary digits


def _fits_float(stored: pa.DataType, declared: pa.DataType, *, exact: bool) -> bool:
    if pa.types.is_floating(stored):
        return bool(stored.bit_width <= declared.bit_width)
    if not pa.types.is_integer(stored):
        return False
    return not exact or stored.bit_width <= _FLOAT_DIGITS[declared.bit_width]


def _fits_decimal(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a decimal type can replace another; as keys too, since equal values hash alike, whatever their digits."""
    before_point = declared.precision - declared.scale
    if pa.types.is_decimal128(stored):
        return bool(stored.precision - stored.scale <= before_point and stored.scale <= declared.scale)
    return bool(pa.types.is_integer(stored) and max(map(abs, _range(stored))) < 10**before_point)


def _range(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)


# --- in words ---------------------------------------------------------------------------------------------------------


def _unfit(stored: Chunk, declared: Chunk, reason: str) -> UserError:
    left = [f"stored, version {stored.version}", *_in_words(stored)]
    right = [f"declared, version {declared.version}", *_in_words(declared)]
    return UserError(f"stored state '{declared.name}' does not fit: {reason}\n{_side_by_side(left, right)}")


def _side_by_side(left: Sequence[str], right: Sequence[str]) -> str:
    width = max(map(len, left))
    return "\n".join(f"  {a:<{width}} | {b}".rstrip() for a, b in zip_longest(left, right, fillvalue=""))


def _titled(chunk: Chunk) -> list[str]:
    return [f"'{chunk.name}', version {chunk.version}", *(f"  {line}" for line in _in_words(chunk))]


def _in_words(chunk: Chunk) -> list[str]:
    roles = dict.fromkeys(chunk.identity, " (subkey)") | dict.fromkeys(chunk.keys, " (key)")
    return [f"{field.name}: {field.type}{roles.get(field.name, '')}" for field in chunk.rows.schema]


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
