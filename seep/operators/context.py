"""The input of a user's operator: a context that makes containers for its state, and the inputs of each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats.evolution import Columns, Hint, hints_of, types_of
from primitives.errors import UserError
from primitives.hashing import hash_key, hash_keys
from primitives.state.codec import Decode, Encode
from primitives.state.container import State
from primitives.state.frame import Frame
from primitives.state.keys import Column
from primitives.state.on_disk.disk import Disk
from primitives.state.on_disk.spilling_frame import SpillingFrame
from primitives.state.on_disk.spilling_values import SpillingValues
from primitives.state.rows import Rows
from primitives.state.timers import Timers
from primitives.state.values import Values
from seep.operators.definition import Input, OperatorSetting
from seep.operators.keyed import key_types
from seep.operators.room import StateBudget
from seep.protocol.logic import Piece
from seep.protocol.messages import MAX_WATERMARK
from seep.rows.batches import in_sequence

Container = TypeVar("Container", bound=State)


class Context:
    """Describes an operator's place in the query, and makes the containers of its state.

    Columns are given by their types, or as `seep.column`, which also says what they were in state stored earlier.
    `aliases` are the names that a container had in state stored earlier.
    """

    def __init__(
        self, operator: str, slot_bits: int, inputs: Sequence[Input], version: int, room: StateBudget | None = None
    ) -> None:
        self.operator = operator
        self.slot_bits = slot_bits
        self.inputs = tuple(inputs)
        self.version = version
        self.keys = key_types(inputs[0])  #: names and types of the key columns, as at port 0
        self.containers: list[State] = []  #: made so far
        self.hints: dict[str, Mapping[str, Hint]] = {}  #: by container: what its columns were in stored state
        self.aliases: dict[str, tuple[str, ...]] = {}  #: by container: its names in stored state
        self._room = room or StateBudget()

    def values(
        self,
        name: str,
        value: pa.DataType | None = None,
        *,
        encode: Encode | None = None,
        decode: Decode | None = None,
        spill: bool = False,
        aliases: Sequence[str] = (),
    ) -> Values:
        """Keeps a Python object for each key; see `Values`. With `spill`, cold slots go to disk: `SpillingValues`."""
        keys = self._keys(name, "value")
        options = {"value": value, "encode": encode, "decode": decode, **self._shared}
        made = SpillingValues(name, keys, **self._spilling(name), **options) if spill else Values(name, keys, **options)
        return self._added(made, aliases)

    def frame(
        self,
        name: str,
        values: Columns,
        *,
        defaults: Mapping[str, Any] | None = None,
        spill: bool = False,
        aliases: Sequence[str] = (),
    ) -> Frame:
        """Keeps a row of columns for each key, read and written in batches; see `Frame`.

        With `spill`, cold slots go to disk; see `SpillingFrame`.
        """
        keys, types, options = self._keys(name), self._types(name, values), {"defaults": defaults, **self._shared}
        if spill:
            return self._added(SpillingFrame(name, keys, types, **self._spilling(name), **options), aliases)
        return self._added(Frame(name, keys, types, **options), aliases)

    def disk(
        self,
        name: str,
        values: Columns,
        *,
        defaults: Mapping[str, Any] | None = None,
        memory: int | None = None,
        aliases: Sequence[str] = (),
    ) -> Disk:
        """Keeps a frame of more rows than fit in memory; see `Disk`.

        `memory` is in bytes; without it, the container takes half of the node's budget for state. Give it for each
        container where a node has several.
        """
        place, share = self._room.place(self.operator, name), self._room.memory // 2
        options = {"directory": place, "memory": memory or share, "defaults": defaults, **self._shared}
        return self._added(Disk(name, self._keys(name), self._types(name, values), **options), aliases)

    def rows(self, name: str, values: Columns, *, aliases: Sequence[str] = ()) -> Rows:
        """Keeps any number of rows for each key; see `Rows`."""
        return self._added(Rows(name, self._keys(name), self._types(name, values), **self._shared), aliases)

    def timers(self, name: str, value: pa.DataType | None = None, *, aliases: Sequence[str] = ()) -> Timers:
        """Keeps records for each key that are returned when they are due; see `Timers`.

        A key column called time, seq or value gets an underscore after its name in the container.
        """
        made = Timers(name, self._keys(name, "time", "seq", "value"), value=value, **self._shared)
        return self._added(made, aliases)

    def _keys(self, name: str, *taken: str) -> dict[str, pa.DataType]:
        if not self.keys:
            raise UserError(f"operator '{self.operator}', state '{name}': unkeyed state; call key_by before it")
        return key_types(self.inputs[0], taken)

    def _types(self, name: str, values: Columns) -> dict[str, pa.DataType]:
        self.hints[name] = hints_of(values)
        return types_of(values)

    def _spilling(self, name: str) -> dict[str, Any]:
        return {"budget": self._room.budget, "directory": self._room.place(self.operator, name)}

    @property
    def _shared(self) -> dict[str, Any]:
        return {"slot_bits": self.slot_bits, "version": self.version}

    def _added(self, made: Container, aliases: Sequence[str]) -> Container:
        if isinstance(aliases, str) or made.name in aliases:
            raise UserError(
                f"the aliases of state '{made.name}' must be a list of other names that it had; got {aliases!r}"
            )
        self.containers.append(made)
        if aliases:
            self.aliases[made.name] = tuple(aliases)
        return made


class Inputs:
    """The rows of one epoch by port, with the time and random numbers that an operator may use, equal in a replay."""

    def __init__(
        self, setting: OperatorSetting, piece: Piece[pa.RecordBatch], batches: Sequence[pa.RecordBatch]
    ) -> None:
        self.epoch = piece.epoch
        #: progress of event time: microseconds since 1970 for timestamps of any unit, otherwise in the integers' unit
        self.watermark = piece.watermark
        self.slots = piece.slots  #: the slots of all keys of these rows
        self.time = piece.epoch * setting.epoch_seconds  #: logical seconds since the query began
        self._setting = setting
        self._batches = batches

    def __getitem__(self, port: int) -> pa.RecordBatch:
        """Returns the rows at a port. Their order may differ in a replay, so no result may depend on it."""
        return self._batches[port]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)

    @property
    def ended(self) -> bool:
        """Whether the input has ended with these rows; true in each of the last few epochs."""
        return self.watermark == MAX_WATERMARK

    def in_sequence(self, port: int = 0) -> pa.RecordBatch:
        """Returns the rows at a port, sorted by event time, then by all columns."""
        return in_sequence(self[port], self._setting.inputs[port].time)

    def uniform(self, columns: Sequence[Column], draw: int = 0) -> NDArray[np.float64]:
        """Returns a number in [0, 1) for each row, computed from some columns, such as the key, and the epoch.

        Another `draw` gives other numbers for the same columns.
        """
        seed = hash_key(self._setting.operator, self.epoch, draw)
        hashes = hash_keys([*columns, np.full(len(columns[0]), seed, np.uint64)])
        return (hashes >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)
