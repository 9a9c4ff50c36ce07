"""The definition of an operator in a query: which columns it puts out, and how to make the logic of an instance."""

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
    """An operator's place in its query: everything that its instances need to know."""

    operator: str
    slot_bits: int
    inputs: tuple[Input, ...]  #: by port
    output: pa.Schema
    outputs: tuple[Edge, ...]  #: each of them gets everything that the operator puts out
    dead_letters: Edge | None = None  #: receiver of rows on which user code fails; None stops the run instead
    epoch_seconds: float = 0.05
    strict: bool = False  #: checks user code for mistakes, at any cost: for tests
    room: StateBudget | None = None  #: the budget of the node; None: a temporary one is made


class Definition(ABC):
    """An operator between sources and sinks. It is sent to the nodes with the query, so it holds no open resources."""

    kind: ClassVar[Kind]
    keeps_extra: ClassVar[bool] = False  #: its instances, though stateless, store data with checkpoints

    @abstractmethod
    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """Returns the columns it puts out; raises UserError that names the operator if it cannot use these inputs."""

    @abstractmethod
    def logic(self, setting: OperatorSetting) -> Logic[pa.RecordBatch]:
        """Makes the logic of one instance."""
