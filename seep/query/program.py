"""The program: a checked query in the form that nodes run. It is made once, in the driver, and sent to the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from formats.renaming import renamed
from primitives.arrow_batches import ArrowBatches
from primitives.graph import Edge, QueryGraph
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, OperatorSetting
from seep.operators.room import StateBudget
from seep.protocol.cuts import Beginning
from seep.protocol.logic import Logic, SourceLogic
from seep.sinks.definition import SinkDefinition
from seep.sources.definition import SourceDefinition, SourceSetting


@dataclass(frozen=True, slots=True)
class Resume:
    """A checkpoint in storage that a run begins from."""

    checkpoint: int
    beginning: Beginning
    sinks: Mapping[str, Any]  #: the notes of the sinks of the earlier run
    pushed: Mapping[str, int] = field(default_factory=dict)  #: by source that Spark pushes to: the first batch
    ended: bool = False  #: all sources had been read to their end

    def renamed(self, aliases: Mapping[str, Sequence[str]]) -> Resume:
        """Returns the same checkpoint for sources that have other names now."""
        positions = renamed("source", self.beginning.positions, aliases)
        return replace(self, beginning=replace(self.beginning, positions=positions))


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that a run needs to know about a query; it implements `Operators` for the nodes."""

    name: str
    graph: QueryGraph
    schemas: Mapping[Edge, pa.Schema]  #: the columns on every stream
    keys: Mapping[Edge, tuple[str, ...]]  #: the key columns of every stream; none: routed by whole rows
    operators: Mapping[str, tuple[Definition, OperatorSetting]]
    sources: Mapping[str, tuple[SourceDefinition, SourceSetting]]
    sinks: Mapping[str, tuple[SinkDefinition, pa.Schema]]
    parallelism: Mapping[str, int] = field(default_factory=dict)  #: instances per operator; 1 where absent
    resume: Resume | None = None  #: the checkpoint that the run begins from; None: it begins from nothing
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: by operator: its names in stored state

    @property
    def begins_at_end(self) -> bool:
        """Whether the run begins from a checkpoint at which all its sources had ended."""
        resume = self.resume
        return resume is not None and resume.ended and self.sources.keys() <= resume.beginning.positions.keys()

    def batches(self) -> ArrowBatches:
        return ArrowBatches(self.graph, self.keys)

    def logic(self, operator: str) -> Logic[pa.RecordBatch]:
        definition, setting = self.operators[operator]
        return definition.logic(setting)

    def standing(self, operator: str) -> Logic[pa.RecordBatch] | None:
        """Makes the logic of a stand-by if its state is in memory only: disk is for instances in use."""
        logic = self.logic(operator)
        if isinstance(logic, BatchLogic) and not logic.state.in_memory:
            logic.close()
            return None
        return logic

    def in_room(self, room: StateBudget) -> Program:
        """Returns the program for a node whose instances share this budget for their state."""
        operators = {
            name: (definition, replace(setting, room=room)) for name, (definition, setting) in self.operators.items()
        }
        return replace(self, operators=operators)

    def source(self, operator: str) -> SourceLogic[pa.RecordBatch]:
        definition, setting = self.sources[operator]
        return definition.logic(setting)
