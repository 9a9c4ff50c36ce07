"""A scripted source: a sequence of batches, with failures and changes of the query between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.own import OwnState
from primitives.state.processing import Containers
from seep.protocol.logic import Reading
from seep.protocol.messages import MAX_WATERMARK, Positions
from seep.query.checks import check_time
from seep.rows.times import event_times
from seep.sources.definition import SourceDefinition, SourceSetting

MIN_WATERMARK = -(2**63)


@dataclass(frozen=True, slots=True)
class Kill:
    """Kills the node of an instance."""

    operator: str
    index: int | None = None  #: index of the instance; the lowest that exists, if not given


@dataclass(frozen=True, slots=True)
class Scale:
    """Scales the operator to this number of instances."""

    operator: str
    parallelism: int


@dataclass(frozen=True, slots=True)
class BackUp:
    """Asks all instances with state, or those of one operator, for a checkpoint."""

    operator: str | None = None


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Takes a savepoint of the whole query; the source reads nothing more until it is complete."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Kills all processes; a new run continues from the last savepoint, or begins from nothing if there is none."""

    parallelism: Mapping[str, int] = field(default_factory=dict)  #: by operator, if it changes


@dataclass(frozen=True, slots=True)
class Notice:
    """Gives notice that the VM of an instance's node will end: its instances move elsewhere, then the node ends."""

    operator: str
    index: int | None = None  #: index of the instance; the lowest that exists, if not given


@dataclass(frozen=True, slots=True)
class Pause:
    """Has nothing to read for some epochs."""

    epochs: int = 1


Cue = Kill | Scale | BackUp | Savepoint | Restart | Notice


class Script(SourceDefinition):
    """A source with one partition, of which each batch is an epoch. A cue takes effect when all before it is read."""

    def __init__(self, *items: pa.RecordBatch | Cue | Pause, time: str | None = None, out_of_order: int = 0) -> None:
        #: the batch of each epoch
        self.epochs: list[pa.RecordBatch | None] = []
        #: cues, each with the number of epochs before it
        self.cues: list[tuple[int, Cue]] = []
        #: the numbers of epochs after which it waits for a savepoint
        self._waits: set[int] = set()
        for item in items:
            self._take(item)
        batches = [batch for batch in self.epochs if batch is not None]
        if not batches:
            raise UserError("a script needs at least one batch, though it may have no rows: it tells the columns")
        if any(batch.schema != batches[0].schema for batch in batches):
            raise UserError("the batches of a script must have the same columns")
        self._schema, self._time, self._out_of_order = batches[0].schema, time, out_of_order

    def _take(self, item: pa.RecordBatch | Cue | Pause) -> None:
        match item:
            case Pause(epochs):
                self.epochs += [None] * epochs
            case Savepoint():
                self.cues.append((len(self.epochs), item))
                self.epochs.append(None)  # so that there is something left to be read, until it is complete
            case Kill() | Scale() | BackUp() | Restart() | Notice():
                self.cues.append((len(self.epochs), item))
            case pa.RecordBatch():
                self.epochs.append(item)
            case _:
                raise UserError(
                    "a script is made of record batches, Kill, Scale, BackUp, Savepoint, Restart, Notice "
                    f"and Pause, not of {item!r}"
                )

    def for_one_run(self) -> Script:
        """Returns a copy for one run, which waits at each savepoint until it is released."""
        script = copy(self)
        script._waits = {position for position, cue in self.cues if isinstance(cue, Savepoint)}
        return script

    def release(self, position: int) -> None:
        """Continues after the savepoint at a position, which is complete."""
        self._waits.discard(position)

    def waits(self, position: int) -> bool:
        """Whether it waits for a savepoint at a position."""
        return position in self._waits

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def time(self) -> str | None:
        return self._time

    @property
    def partitions(self) -> int:
        return 1

    def check(self, operator: str) -> None:
        if self._time is not None:
            check_time(operator, self._schema, self._time)

    def logic(self, setting: SourceSetting) -> ScriptLogic:
        return ScriptLogic(self, setting)

    def watermarks(self) -> list[int]:
        """The watermark after each number of epochs."""
        latest, found = MIN_WATERMARK, [MIN_WATERMARK]
        for batch in self.epochs:
            if batch is not None and batch.num_rows and self._time is not None:
                latest = max(latest, int(event_times(batch.column(self._time)).max()) - self._out_of_order - 1)
            found.append(latest)
        return [*found[:-1], MAX_WATERMARK]


class ScriptLogic:
    """Reads a script; its position is the number of epochs that it has read."""

    def __init__(self, script: Script, setting: SourceSetting) -> None:
        self.state = Containers(OwnState("positions", self, slot_bits=setting.slot_bits))
        self._script = script
        self._epochs: Sequence[pa.RecordBatch | None] = script.epochs
        self._watermarks = script.watermarks()
        self._outputs = setting.outputs
        self._positions: dict[int, int] = {}

    def seek(self, positions: Positions) -> None:
        self._positions.update(positions)

    def committed(self, epoch: int) -> None:
        """See `SourceLogic.committed`; the script says how much it reads."""

    def read(self, epoch: int, slots: SlotSet) -> Reading[pa.RecordBatch]:
        """See `SourceLogic.read`."""
        at = self._positions.get(0, 0)
        return self.reread(epoch, slots, {0: at if self._script.waits(at) else min(at + 1, len(self._epochs))})

    def reread(self, epoch: int, slots: SlotSet, positions: Positions) -> Reading[pa.RecordBatch]:  # noqa: ARG002
        """See `SourceLogic.reread`."""
        at, end = self._positions.get(0, 0), int(positions[0])
        self._positions[0] = end
        batch = self._epochs[at] if at < end else None
        outputs = dict.fromkeys(self._outputs, batch) if batch is not None and batch.num_rows else {}
        return Reading(outputs, {0: end}, self._watermarks[end], exhausted=end == len(self._epochs))

    # -- its positions as state, for the container --------------------------------------------------------------------

    def get_processing_state(self, slots: SlotSet) -> dict[int, int]:
        return {slot: at for slot, at in self._positions.items() if slot in slots}

    def set_processing_state(self, state: Mapping[int, Any]) -> None:
        self._positions.update(state)

    def drop_processing_state(self, slots: SlotSet) -> None:
        for slot in slots:
            self._positions.pop(slot, None)
