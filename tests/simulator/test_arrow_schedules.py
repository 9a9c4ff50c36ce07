"""The real data structures under random schedules: Arrow batches, state containers, and outboxes that spill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint, checkpoint_state, merge_checkpoints
from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from primitives.slots import SlotSet
from primitives.spill import SpillStore
from primitives.state.chunk import Chunk
from primitives.state.frame import Frame
from primitives.state.processing import Containers
from primitives.state.timers import Timers
from primitives.state.values import Values
from seep.protocol.instances.departures import Departures
from seep.protocol.instances.keyed import KeyedInstance
from seep.protocol.logic import Piece
from seep.protocol.messages import Attach, StateMoved
from seep.simulator import operators
from seep.simulator.arrow import Arrow, ArrowSource, from_rows, to_rows
from seep.simulator.faults import What
from seep.simulator.operators import Delay, Keyed, Route, Row, RowJoin, RowMap, Rows, Sum
from seep.simulator.schedule import Outcome, Plan, Verdict, minimise, run_schedule
from seep.simulator.world import Limits

#: All that can happen, on as many rows as in the plain runs.
FAULTS = Plan()
#: Longer runs in which slots and checkpoints move about all the time.
MOVES = Plan(
    most_faults=30,
    over_steps=2500,
    limits=Limits(rows=24),
    only=(
        *(What.MOVE, What.MOVE_BACK, What.PREPARED_MOVE, What.MERGE, What.SPLIT),
        *(What.CHECKPOINT, What.CUT, What.PERSIST, What.RESTART),
    ),
)


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Arrow]:
    """Arrow with outboxes that spill, and every chunk compared with what it stands for."""
    with compared():
        yield Arrow(spill_to=tmp_path)


@contextmanager
def compared() -> Iterator[None]:
    """Wherever chunks make up state again, the result is compared with a full snapshot of the state itself.

    That is stricter than to compare what comes out at the sinks, where a wrong row of state need not show.
    """
    kept: dict[Any, Any] = {}
    left: dict[Any, Any] = {}
    served, take_in = Departures._served, KeyedInstance._take_in

    def checkpoint(state: Containers, outbox: Any, **facts: Any) -> Checkpoint:
        kept[facts["owner"], facts["incarnation"], facts["serial"]] = content(state.snapshot(facts["slots"]))
        return checkpoint_state(state, outbox, **facts)

    def merge(base: Checkpoint, deltas: Sequence[Checkpoint]) -> Checkpoint:
        merged = merge_checkpoints(base, deltas)
        if deltas:
            whole = kept[merged.owner, merged.incarnation, merged.serial]
            assert content(merged.state) == whole, f"merged checkpoint {merged.epoch} of {merged.owner}"
        return merged

    def depart(self: Any, epoch: int, attach: Attach) -> Iterator[StateMoved]:
        slots = self.held[epoch].get(attach.receiver.instance, SlotSet.empty())
        left[self._me, attach.receiver, epoch] = content(self._state.snapshot(slots))
        return served(self, epoch, attach)

    def arrive(self: Any, message: StateMoved, slots: SlotSet) -> None:
        take_in(self, message, slots)
        whole = left[message.sender, self.me, message.epoch]
        assert content(self.state.snapshot(slots)) == whole, f"{slots} from {message.sender} before {message.epoch}"

    with (
        patch("seep.protocol.instances.stateful.checkpoint_state", checkpoint),
        patch("primitives.backup.merge_checkpoints", merge),
        patch.object(Departures, "_served", depart),
        patch.object(KeyedInstance, "_take_in", arrive),
    ):
        yield


def content(chunks: Iterable[Any]) -> dict[str, Counter[Any]]:
    """The rows by container; of Arrow chunks only, so that a schedule on plain tuples is left alone."""
    rows = {chunk.name: chunk.rows.to_pylist() for chunk in chunks if isinstance(chunk, Chunk)}
    return {name: Counter(tuple(row.values()) for row in of_name) for name, of_name in rows.items()}


def first_violation(seeds: range, plan: Plan) -> Outcome | None:
    outcomes = (run_schedule(seed, plan) for seed in seeds)
    return next((outcome for outcome in outcomes if outcome.verdict is Verdict.VIOLATION), None)


def explain(found: Outcome, plan: Plan) -> str:
    """What failed, what to suspect, and how to see it again."""
    name = "MOVES" if plan.only else "FAULTS"
    on_tuples = run_schedule(found.seed, replace(plan, medium=None)).verdict
    return (
        f"seed {found.seed} fails on Arrow: {found.note}\n"
        f"The same schedule on plain tuples: {on_tuples.value}. If that is exact, suspect a container.\n"
        f"The fewest faults that still fail: {minimise(found, plan).faults}\n"
        f"To replay it, in this module: "
        f"with compared(): run_schedule({found.seed}, replace({name}, medium=Arrow()), trace=print)"
    )


# --- schedules --------------------------------------------------------------------------------------------------------


def test_schedules_with_all_kinds_of_faults_are_exact(medium: Arrow) -> None:
    plan = replace(FAULTS, medium=medium)
    found = first_violation(range(40), plan)
    assert found is None, explain(found, plan)


def test_schedules_full_of_moves_are_exact_and_take_every_path(medium: Arrow) -> None:
    """Were outboxes not to spill, deltas not to be merged and state not to move, being exact would mean little."""
    plan = replace(MOVES, medium=medium)
    with ExitStack() as stack:
        spilled, read, merged, moved = (
            stack.enter_context(patch.object(kind, name, autospec=True, side_effect=getattr(kind, name)))
            for kind, name in ((SpillStore, "put"), (SpillStore, "get"), (Chunk, "merge"), (KeyedInstance, "_take_in"))
        )
        found = first_violation(range(30), plan)
    assert found is None, explain(found, plan)
    assert min(spilled.call_count, read.call_count) > 500
    assert merged.call_count > 50
    assert {call.args[1].base is None for call in moved.call_args_list} == {True, False}


# --- the schedules notice containers that are wrong -------------------------------------------------------------------


def frames_forget_deletions() -> AbstractContextManager[Any]:
    return patch.object(Frame, "_deleted_since", lambda self, _since, _slots: self._no_keys())


def timers_forget_what_was_popped() -> AbstractContextManager[Any]:
    return patch.object(Timers, "_removed", lambda _self, _slots, _since: [])


def values_miss_changes_in_place() -> AbstractContextManager[Any]:
    return patch.object(Values, "_handed_out", lambda _self, cell: cell.value)


def chunks_are_not_cut_by_slot() -> AbstractContextManager[Any]:
    return patch.object(Chunk, "select", lambda self, _slots: self)


BROKEN = [
    frames_forget_deletions,
    timers_forget_what_was_popped,
    values_miss_changes_in_place,
    chunks_are_not_cut_by_slot,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_schedules_on_arrow_notice_a_broken_container(broken: Callable[[], AbstractContextManager[Any]]) -> None:
    with compared(), broken():
        assert first_violation(range(50), replace(MOVES, medium=Arrow()))


# --- operators --------------------------------------------------------------------------------------------------------

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)


def graph_around(kind: type[Keyed]) -> QueryGraph:
    """An operator with two inputs and two outputs."""
    what = Kind.STATELESS if kind in (RowMap, Route) else Kind.STATEFUL
    return QueryGraph(
        [
            OperatorSpec("src", Kind.SOURCE),
            OperatorSpec("op", what, SLOT_BITS),
            *(OperatorSpec(o, Kind.SINK) for o in "ab"),
        ],
        [Edge("src", "op", 0), Edge("src", "op", 1), Edge("op", "a"), Edge("op", "b")],
    )


rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 50), st.integers(0, 60))).map(tuple)
slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)
epochs = st.lists(st.tuples(rows, rows, slot_sets, slot_sets), max_size=5)


@pytest.mark.parametrize("kind", [RowMap, Route, Sum, Delay, RowJoin])
@given(epochs)
def test_an_arrow_operator_does_what_the_plain_one_does(kind: type[Keyed], some: list[tuple[Any, ...]]) -> None:
    """Also when an epoch comes in pieces, and when slots leave between epochs and come back."""
    graph, medium = graph_around(kind), Arrow()
    plain, arrow = kind(graph, "op"), medium.logic(graph, "op", kind)
    for epoch, (left, right, first, moved) in enumerate(some):
        for slots in (first, FULL - first):
            piece = cut(graph, Piece(epoch, {0: (left,), 1: (right,)}, epoch * 15, FULL), slots)
            expected = {edge: Counter(batch) for edge, batch in plain.process(piece).items() if batch}
            assert put_out(arrow.process(as_arrow(piece))) == expected
        chunks = tuple(arrow.state.snapshot(moved))
        arrow.state.drop(moved)
        arrow.state.restore(chunks)


def cut(graph: QueryGraph, piece: Piece[Rows], slots: SlotSet) -> Piece[Rows]:
    batches = operators.RowBatches(graph)
    chosen = {
        port: tuple(filter(None, (batches.select(Edge("src", "op", port), batch, slots) for batch in of_port)))
        for port, of_port in piece.inputs.items()
    }
    return piece._replace(inputs=chosen, slots=slots)


def as_arrow(piece: Piece[Rows]) -> Piece[pa.RecordBatch]:
    inputs = {port: tuple(map(from_rows, of_port)) for port, of_port in piece.inputs.items()}
    return Piece(piece.epoch, inputs, piece.watermark, piece.slots)


def put_out(outputs: Mapping[Edge, pa.RecordBatch]) -> dict[Edge, Counter[Row]]:
    return {edge: Counter(to_rows(batch)) for edge, batch in outputs.items()}


def test_a_source_on_arrow_reads_on_where_its_positions_were_handed_over() -> None:
    graph = QueryGraph([OperatorSpec("src", Kind.SOURCE, 1), OperatorSpec("out", Kind.SINK)], [Edge("src", "out")])
    data = {slot: tuple((slot, n, n) for n in range(6)) for slot in (0, 1)}
    here, there = (ArrowSource(operators.RowSource(graph, "src", data, bite=lambda: 2)) for _ in range(2))
    both, one = SlotSet([0, 1]), SlotSet([1])
    here.read(1, both)
    there.state.restore(here.state.snapshot(one))
    here.state.drop(one)
    (batch,) = there.read(2, one).outputs.values()
    assert to_rows(batch) == ((1, 2, 2), (1, 3, 3))
    assert here.get_processing_state(both) == {0: 2}
