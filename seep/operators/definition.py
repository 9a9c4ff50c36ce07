"""What an operator is before any instance of it runs: which rows it puts out, and how to make its logic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa

from primitives.graph import Edge, Kind
from seep.operators.room import StateBudget
from seep.protocol.logic import Logic


class Input(NamedTuple):
    """The stream that an operator reads at one of its ports."""

    schema: pa.Schema
    keys: tuple[str, ...] = ()  #: key columns; none if the stream is not keyed
    time: str | None = None  #: the column with the event time, if the stream has one


@dataclass(frozen=True, slots=True)
class OperatorSetting:
    """Where an operator stands in its query: all that its instances are told."""

    operator: str
    slot_bits: int
    inputs: tuple[Input, ...]  #: by port
    output: pa.Schema
    outputs: tuple[Edge, ...]  #: each of them gets everything that the operator puts out
    dead_letters: Edge | None = None  #: where rows go that user code fails on; None to stop the run instead
    epoch_seconds: float = 0.05
    strict: bool = False  #: what user code does wrong is looked for, whatever it costs: in tests
    room: StateBudget | None = None  #: of the node that the instance is on; a temporary one where none is given


class Definition(ABC):
    """An operator between sources and sinks. It travels to the nodes with the query, so it holds no open resources."""

    kind: ClassVar[Kind]
    keeps_extra: ClassVar[bool] = False  #: its instances, though stateless, give something to cuts

    @abstractmethod
    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """The columns it puts out; UserError that names the operator if it cannot work with these inputs."""

    @abstractmethod
    def logic(self, setting: OperatorSetting) -> Logic[pa.RecordBatch]:
        """The logic of one instance."""
