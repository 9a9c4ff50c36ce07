"""Vertices: operators as the user declared them, before compilation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

import pyarrow as pa

from primitives.errors import UserError
from primitives.graph import Kind
from seep.operators.definition import Definition
from seep.rows.rate import Rate
from seep.sinks.definition import SinkDefinition
from seep.sources.definition import SourceDefinition

if TYPE_CHECKING:
    from seep.query.stream import Stream

#: The sink of the rows on which users' functions fail.
DEAD_LETTERS_SINK = "dead-letters"

#: The action if a user's function fails on a row: stop the query, or send the row to the sink `dead-letters`.
OnError = Literal["stop", "dead-letters"]


class VertexOptions(TypedDict, total=False):
    """The options of every operator; the query has defaults for them."""

    parallelism: int  #: instances at the start
    slot_bits: int  #: its keyed state is divided into 2^slot_bits slots for the query's life


class OperatorOptions(VertexOptions, total=False):
    """The options of an operator between sources and sinks."""

    aliases: Sequence[str]  #: its names in state stored earlier


class CodeOptions(OperatorOptions, total=False):
    """The options of an operator that runs a user's function."""

    on_error: OnError


@dataclass(frozen=True, slots=True)
class SourceVertex:
    name: str
    definition: SourceDefinition
    rate: Rate | None = None
    parallelism: int | None = None
    aliases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class OperatorVertex:
    name: str
    definition: Definition
    inputs: tuple[Stream, ...]  #: by port
    output: pa.Schema
    options: CodeOptions = field(default_factory=CodeOptions)
    runs_user_code: bool = False


@dataclass(frozen=True, slots=True)
class SinkVertex:
    name: str
    definition: SinkDefinition
    inputs: tuple[Stream, ...]
    options: VertexOptions = field(default_factory=VertexOptions)


Vertex = SourceVertex | OperatorVertex | SinkVertex


def streams_into(vertex: Vertex) -> Iterator[tuple[int, Stream]]:
    """Yields the streams that a vertex reads, with their ports."""
    if not isinstance(vertex, SourceVertex):
        yield from enumerate(vertex.inputs)


def kind_of(vertex: Vertex) -> Kind:
    """Returns the kind of the operator that a vertex becomes."""
    match vertex:
        case SourceVertex():
            return Kind.SOURCE
        case SinkVertex():
            return Kind.SINK
    return vertex.definition.kind


def lines_of(vertex: Vertex) -> list[str]:
    """Returns lines of text about a vertex: what it does, its keys, and its instances if it has said how many.

    Rows of different input ports may have different keys; the first are named.
    """
    user = getattr(vertex.definition, "operator", None)
    made = vertex.definition if user is None else user
    keys = [", ".join(stream.keys) for _, stream in streams_into(vertex) if stream.keys]
    count = vertex.parallelism if isinstance(vertex, SourceVertex) else vertex.options.get("parallelism")
    name = made.__name__ if hasattr(made, "__name__") else type(made).__name__
    lines = [f"{name} by {keys[0]}" if keys and kind_of(vertex) is Kind.STATEFUL else name]
    return lines if count is None else [*lines, f"{count} instances" if count > 1 else "1 instance"]


def check_options(operator: str, options: VertexOptions | CodeOptions, known: type[VertexOptions]) -> None:
    """Raises UserError for an unknown option, or an invalid value."""
    for word, value in options.items():
        if word not in known.__annotations__:
            allowed = ", ".join(sorted(known.__annotations__))
            raise UserError(f"operator {operator!r} has no option {word!r}; it takes {allowed}")
        if word == "parallelism" and (not isinstance(value, int) or value < 1):
            raise UserError(f"operator {operator!r}: parallelism is {value!r}; choose a whole number from 1 on")
    check_on_error(f"operator {operator!r}", options.get("on_error", "stop"))
    check_aliases(operator, options.get("aliases", ()))


def check_aliases(operator: str, aliases: object) -> None:
    """Raises UserError unless the aliases are a list of other names."""
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise UserError(f"operator {operator!r}: its aliases are a list of names; write aliases=['the-old-name']")
    for alias in aliases:
        if not isinstance(alias, str) or alias == operator:
            raise UserError(
                f"operator {operator!r}: {alias!r} cannot be an alias of it; name what it was called before"
            )


def aliases_of(vertex: Vertex) -> tuple[str, ...]:
    """Returns the names of a vertex in state stored earlier; sinks keep their names."""
    match vertex:
        case SourceVertex():
            return tuple(vertex.aliases)
        case OperatorVertex():
            return tuple(vertex.options.get("aliases", ()))
    return ()


def check_on_error(whose: str, on_error: object) -> None:
    if on_error not in ("stop", "dead-letters"):
        raise UserError(f"{whose}: on_error is {on_error!r}; choose 'stop' or 'dead-letters'")


def as_rate(source: str, rate: Rate | float) -> Rate:
    """Returns the rate; a plain number is a steady rate."""
    if isinstance(rate, Rate):
        return rate
    if not isinstance(rate, int | float) or rate <= 0:
        raise UserError(f"source {source!r}: the rate {rate!r} is not a number of rows per second above 0")
    return Rate(float(rate))
