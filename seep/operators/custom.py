"""The base classes of users' own operators on batches, with state and notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from formats.evolution import Evolution
from formats.renaming import check_aliases
from primitives.errors import SeepError, UserError
from primitives.graph import Kind
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet
from primitives.state.changes import Tracked
from primitives.state.container import State
from primitives.state.keys import Column, Key
from primitives.state.own import OwnState
from primitives.state.owned_keys import OwnedKeys
from primitives.state.processing import Containers
from primitives.state.timers import Timers
from seep.operators.base import BatchLogic
from seep.operators.context import Context, Inputs
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.operators.errors import UserCodeFailed, describe, naming
from seep.operators.keyed import check_keyed
from seep.operators.strictness import Strictness
from seep.protocol.logic import Logic, Piece
from seep.rows.batches import as_batch, concat, conform

#: The output of an operator: a RecordBatch, a Table, a mapping of columns, or None.
Output = Any

#: How often an operator may schedule notifications in one epoch that are due immediately.
_ROUNDS = 10_000

_OWN = ("get_processing_state", "set_processing_state", "drop_processing_state")


class Operator:
    """An operator of your own with state per key: subclass it, and define `output` and `process`.

    State is kept in containers that `open` makes with its context, by the key columns of the stream. Instead, an
    operator may define `get_`, `set_` and `drop_processing_state`, as in SEEP, and keep its state in any form; see
    `OwnState`. In both cases state moves with its slots, so an operator may read and write only state of keys that it
    has received rows of: a new key that belongs to another instance is refused. Attributes are not state: set them in
    `__init__` and `open` only; name those that are only a cache in `caches`. `seep.testing` checks these rules.

    A changed operator takes over stored state: columns may be added, renamed and widened as they are declared by
    `column`; beyond that, raise `version` and give it a `migrate_state(old_version, chunk)`, which is called for each
    container, also with a chunk that has no rows, and returns the chunk as it is now.

    An operator must be a deterministic function of its state and rows: it uses no clock and no random numbers but those
    of `Inputs`. An exception stops the run, even if the query has a sink for dead letters: only the operator knows
    which rows are at fault, and passes them to `fail`.

    >>> class Total(Operator):
    ...     def output(self, inputs):
    ...         return inputs[0].schema
    ...
    ...     def open(self, context):
    ...         self.totals = context.frame("totals", {"n": pa.int64()})
    ...
    ...     def process(self, inputs):
    ...         rows = self.totals.add(inputs[0], n=inputs[0]["n"])
    ...         return self.totals.take(np.unique(rows))
    """

    ports: ClassVar[int] = 1  #: the number of streams that it reads
    version: ClassVar[int] = 0  #: the version of its state; raise it when the meaning of stored state changes
    notify_type: ClassVar[pa.DataType | None] = None  #: the type of notifications' values; None: any object
    keeps_state: ClassVar[bool] = True
    caches: ClassVar[Sequence[str]] = ()  #: attributes that may change, because no output depends on them

    _running: _Running  # set before the first epoch

    def open(self, context: Context) -> Iterable[State] | None:  # noqa: ARG002
        """Makes the containers of its state; returns those that the context did not make, if any."""
        return None

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        """Returns the columns of its output for these input streams; raises UserError if it cannot use them."""
        raise NotImplementedError

    def process(self, inputs: Inputs) -> Output:
        """Returns its output for the rows of an epoch; called only if there are rows."""
        raise NotImplementedError

    def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> Output:
        """Returns its output for the notifications that are due: all up to the watermark, sorted by time and key.

        It is called after `process`. `due` has the columns time, the key's, and value (see `records`). A notification
        that it schedules for a time that the watermark has passed is due at once, in another call; so do not schedule
        the next of a regular notification when `inputs.ended`.
        """
        raise NotImplementedError

    def notify(self, time: int, key: Any, value: Any = None) -> None:
        """Schedules a notification; a key of several columns is a tuple.

        The time has the unit of `inputs.watermark`: microseconds since 1970 if the event time is a timestamp of any
        unit, otherwise the unit of its integers.
        """
        self._running.schedule(time, key, value)

    def notify_batch(self, times: Column, keys: Sequence[Column], values: Column | None = None) -> None:
        """Schedules notifications; `keys` has a column for each key column. See `notify` for the times."""
        self._running.schedule_batch(times, keys, values)

    def records(self, due: pa.RecordBatch) -> Iterator[tuple[int, Key, Any]]:
        """Yields time (see `notify`), key and value of each notification, as Python objects."""
        return self._running.notifications.records(due)

    def fail(self, row: Mapping[str, Any], error: Exception) -> None:
        """Makes a row a dead letter, or stops the run if the query has no sink for dead letters."""
        self._running.fail(row, error)


class StatelessOperator(Operator):
    """An operator of your own without state, so its streams need not be keyed.

    With one port, `process` must be pure: when it raises, it is called again with parts of the rows to find those at
    fault, which stop the run or become dead letters.
    """

    keeps_state: ClassVar[bool] = False

    def get_extra(self) -> bytes | None:
        """Returns data to be stored with checkpoints in storage although no output needs it, such as a cache; optional.

        An instance that is restored after a failure begins without it.
        """
        return None

    def set_extra(self, extras: Sequence[bytes]) -> None:
        """Receives what `get_extra` returned for the checkpoint that a run begins from, by instance."""


class CustomOperator(Definition):
    """Puts a user's operator into a query: from a subclass, another factory, or an object, which is copied."""

    kind: ClassVar[Kind] = Kind.STATEFUL

    def __init__(self, operator: Operator | Callable[[], Operator]) -> None:
        self.operator = operator
        if not self._new().keeps_state:
            self.kind = Kind.STATELESS  # type: ignore[misc]  # the operator says which kind it is
            self.keeps_extra = _keeps_extra(self._new())  # type: ignore[misc]

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        user = self._new()
        if type(user).output is Operator.output:
            raise UserError(
                f"operator '{operator}': {type(user).__name__} does not say which columns it puts out; give it a "
                "method output(self, inputs) that returns a pyarrow.Schema"
            )
        if len(inputs) != user.ports:
            raise UserError(
                f"operator '{operator}': {type(user).__name__} reads {user.ports} stream(s), and {len(inputs)} are "
                "connected to it; set its `ports`, or connect others"
            )
        if user.keeps_state:
            _check_keyed(operator, inputs)
        with naming(operator):
            schema = user.output(inputs)
            context = Context(operator, DEFAULT_SLOT_BITS, inputs, user.version)
            Containers(*_open(user, context).containers).close()
        if not isinstance(schema, pa.Schema):
            raise UserError(f"operator '{operator}': its output() returned {schema!r}; return a pyarrow.Schema")
        return schema

    def logic(self, setting: OperatorSetting) -> Logic[pa.RecordBatch]:
        """See `Definition.logic`."""
        return _Running(setting, self._new())

    def _new(self) -> Operator:
        made = deepcopy(self.operator) if isinstance(self.operator, Operator) else self.operator()
        if not isinstance(made, Operator):
            raise UserError(f"{made!r} is not an operator; make an object of a subclass of Operator")
        return made


def _keeps_extra(operator: Operator) -> bool:
    return isinstance(operator, StatelessOperator) and type(operator).get_extra is not StatelessOperator.get_extra


# --- what is checked --------------------------------------------------------------------------------------------------


def _check_keyed(operator: str, inputs: Sequence[Input]) -> None:
    try:
        check_keyed(operator, inputs)
    except UserError as error:
        if all(given.keys for given in inputs):
            raise
        raise UserError(f"{error}, or make it a StatelessOperator if it keeps nothing") from None


class _State(NamedTuple):
    """The containers of an operator and, among them, its notifications."""

    containers: list[State]
    notifications: Timers | None


def _open(operator: Operator, context: Context) -> _State:
    """Opens an operator; raises UserError if it has state that could not move with its slots."""
    others = operator.open(context) or ()
    mine = list(context.containers)
    mine += [state for state in others if not any(state is made for made in mine)]
    if mine and not operator.keeps_state:
        raise UserError(f"a StatelessOperator keeps no state, and this one has '{mine[0].name}'; subclass Operator")
    for state in mine:
        _check_container(state, context)
    check_aliases("state", context.aliases, [state.name for state in mine])
    mine += _own_state(operator, context)
    if isinstance(operator, StatelessOperator):
        return _State([*mine, *_extra_state(operator, context)], None)
    notifications = context.timers("notifications", operator.notify_type)
    return _State([*mine, notifications], notifications)


def _own_state(operator: Any, context: Context) -> list[State]:
    """Returns the container of the state that the operator keeps itself, if it does."""
    methods = [method for method in _OWN if hasattr(operator, method)]
    if not methods:
        return []
    if methods != list(_OWN):
        raise UserError(f"it has {', '.join(methods)}; to keep its state itself it needs all of {', '.join(_OWN)}")
    return [OwnState("own", operator, slot_bits=context.slot_bits, version=context.version)]


class _Extra:
    """The extra data of a stateless operator as processing state, which the lowest slot of an instance holds."""

    def __init__(self, operator: StatelessOperator, name: str) -> None:
        self._operator, self._name = operator, name

    def get_processing_state(self, slots: SlotSet) -> Mapping[int, bytes]:
        extra = self._called(self._operator.get_extra) if slots else None
        if extra is not None and not isinstance(extra, bytes):
            raise UserError(f"operator '{self._name}': its get_extra() returned {extra!r}; return bytes")
        return {} if extra is None else {min(slots): extra}

    def set_processing_state(self, state: Mapping[int, bytes]) -> None:
        if state:
            self._called(partial(self._operator.set_extra, list(state.values())))

    def drop_processing_state(self, slots: SlotSet) -> None:
        """Does nothing: no output needs the extra data."""

    def _called(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:
            raise UserError(f"operator '{self._name}', its extra data: {describe(error)}") from error


def _extra_state(operator: StatelessOperator, context: Context) -> list[State]:
    """Returns the container of the operator's extra data, if it keeps any."""
    if not _keeps_extra(operator):
        return []
    return [OwnState("extra", _Extra(operator, context.operator), slot_bits=context.slot_bits, value=pa.binary())]


def _check_container(state: State, context: Context) -> None:
    """Raises unless a container has the same keys and slots as the operator's rows."""
    if isinstance(state, OwnState):
        return
    chunk = state.snapshot(SlotSet.empty())
    found = {key: chunk.rows.schema.field(key).type for key in chunk.keys}
    if list(found.values()) != list(context.keys.values()) or state.slot_bits != context.slot_bits:
        raise UserError(
            f"state '{state.name}' is keyed by {_named(found)} in 2^{state.slot_bits} slots, and rows come by "
            f"{_named(context.keys)} in 2^{context.slot_bits}; make it with context.values, frame, rows or timers"
        )


def _named(columns: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in columns.items())


def _watched(operator: Operator) -> list[object]:
    """Returns the objects whose attributes may not change; none if the operator keeps its state in its attributes."""
    if _keeps_extra(operator) or hasattr(operator, _OWN[0]):
        return []
    return [operator, *getattr(operator, "user_objects", ())]


# --- logic ------------------------------------------------------------------------------------------------------------


class _Running(BatchLogic):
    """Runs a user's operator."""

    def __init__(self, setting: OperatorSetting, operator: Operator) -> None:
        context = Context(setting.operator, setting.slot_bits, setting.inputs, operator.version, setting.room)
        self._context = context  # it holds the state budget, which is closed when nobody holds it
        with naming(setting.operator):
            containers, self._notifications = _open(operator, context)
        super().__init__(setting, *containers)
        #: how to convert state that an earlier version of the operator has stored
        self.evolution = Evolution(context.hints, getattr(operator, "migrate_state", None), context.aliases)
        self._operator = operator
        self._inputs: Inputs  # of the current epoch
        operator._running = self
        self._epoch, self._slots_before, self._slots = -1, SlotSet.empty(), SlotSet.empty()
        self._owning = [state for state in containers if isinstance(state, Tracked)]
        self._strictness = Strictness(setting, self.state, _watched(operator)) if setting.strict else None

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch:
        """See `BatchLogic.compute`."""
        self._inputs = Inputs(self.setting, piece, [self.rows(piece, port) for port in range(len(self.setting.inputs))])
        made = []
        with self._owned_keys(piece):
            if any(map(len, self._inputs)):
                made.append(self._process(piece))
            made += self._notify(piece)
        if self._strictness is not None:
            self._strictness.check_attributes()
        return concat([batch for batch in made if batch is not None], self.setting.output)

    @contextmanager
    def _owned_keys(self, piece: Piece[pa.RecordBatch]) -> Iterator[None]:
        """Makes containers refuse keys of other instances within this context."""
        bits, owned, slots = self.setting.slot_bits, None, self._slots_here(piece)
        if self._strictness is not None and self._operator.keeps_state:
            owned = self._strictness.owned_keys(slots, self._inputs)
        elif len(slots) < 1 << bits:
            owned = OwnedKeys(self.setting.operator, slots, bits)
        for state in self._owning:
            state.owned = owned
        try:
            yield
        finally:
            for state in self._owning:
                state.owned = None

    def _slots_here(self, piece: Piece[pa.RecordBatch]) -> SlotSet:
        """Returns the slots of this instance: those of this epoch's pieces so far, and of the epoch before."""
        if piece.epoch != self._epoch:
            self._epoch, self._slots_before, self._slots = piece.epoch, self._slots, SlotSet.empty()
        self._slots |= piece.slots
        return self._slots_before | self._slots

    def _process(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        if self._operator.keeps_state or len(self._inputs) > 1:
            return self._called(partial(self._operator.process, self._inputs))

        def process(batch: pa.RecordBatch) -> pa.RecordBatch | None:
            return self._conformed(self._operator.process(Inputs(self.setting, piece, [batch])))

        return self.guard.call(piece.epoch, process, self._inputs[0])

    def _notify(self, piece: Piece[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        for _ in range(_ROUNDS):
            if self._notifications is None or not len(due := self._notifications.pop(piece.watermark, piece.slots)):
                return
            yield self._called(partial(self._operator.on_notify, due, self._inputs))
        raise UserError(
            f"operator '{self.setting.operator}' has notified itself {_ROUNDS} times in epoch {piece.epoch} of what "
            f"was due already; stop when inputs.ended, or schedule for after the watermark, {piece.watermark}"
        )

    def _called(self, function: Callable[[], Output]) -> pa.RecordBatch | None:
        """Calls user code; returns its result as a batch of the declared columns."""
        try:
            with naming(self.setting.operator):
                return self._conformed(function())
        except SeepError:
            raise
        except Exception as error:
            rows = [row for batch in self._inputs for row in batch.slice(0, 5).to_pylist()]
            raise UserCodeFailed(self.setting.operator, self._inputs.epoch, rows, describe(error)) from error

    def _conformed(self, given: Output) -> pa.RecordBatch | None:
        if given is None:
            return None
        name = self.setting.operator
        return conform(name, as_batch(name, given), self.setting.output)

    @property
    def notifications(self) -> Timers:
        if self._notifications is None:
            raise UserError("a StatelessOperator has no notifications, as they are state; subclass Operator")
        return self._notifications

    def schedule(self, time: int, key: Any, value: Any) -> None:
        """See `Operator.notify`."""
        self.notifications.schedule(time, key, value)

    def schedule_batch(self, times: Column, keys: Sequence[Column], values: Column | None) -> None:
        """See `Operator.notify_batch`."""
        self.notifications.schedule_batch(times, keys, values)

    def fail(self, row: Mapping[str, Any], error: Exception) -> None:
        """See `Operator.fail`."""
        self.guard.fail(self._inputs.epoch, error, row)
