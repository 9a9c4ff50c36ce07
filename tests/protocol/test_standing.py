"""State that stands ready: it is what the backups say at any time, and whoever takes it over takes it away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from primitives.backup import NodeBackups, retrieve_backup, shorten_backup, store_backup
from primitives.checkpoint import checkpoint_state
from primitives.outbox import Outbox
from primitives.topology import Topology
from seep.protocol.effects import Effect, Post
from seep.protocol.holder import Holder
from seep.protocol.logic import Logic
from seep.protocol.messages import DeleteBackup, Retrieve, Retrieved, StandBy, StoreBackup
from seep.protocol.standing import Standing
from seep.simulator.cells import Cells
from seep.simulator.operators import Sum
from tests.protocol.staging import ALL, GRAPH, SLOT_BITS, SUM, life, node_of, view_of
from tests.protocol.test_holder import checkpoint

KEYS = st.integers(0, 12)
#: What happens between two checkpoints: what is put and deleted, and whether the next one is in full.
ROUNDS = st.lists(st.tuples(st.dictionaries(KEYS, st.integers()), st.sets(KEYS), st.booleans()), min_size=1, max_size=9)


def makes(_: str) -> Logic[object]:
    return Sum(GRAPH, "sum")


def content(state: Cells) -> dict[int, object]:
    return {key: state.get(key) for key in state.keys_in(ALL)}


@given(rounds=ROUNDS, data=st.data())
def test_what_stands_is_what_the_backup_says_whenever_it_follows(
    rounds: list[tuple[dict[int, int], set[int], bool]], data: st.DataObject
) -> None:
    state, store, standing = Cells("sum", SLOT_BITS), NodeBackups(max_deltas=2), Standing(makes)
    for epoch, (put, deleted, is_full) in enumerate(rounds, start=1):
        for key, value in put.items():
            state.put(key, value)
        for key in deleted.intersection(state.keys_in(ALL)):
            state.delete(key)
        base = None if is_full or epoch == 1 else epoch - 1
        taken = checkpoint_state(
            state, Outbox(), owner=SUM, incarnation=0, serial=epoch, epoch=epoch, slots=ALL, base=base
        )
        store_backup(store, taken, merges=data.draw(st.booleans()))
        if data.draw(st.booleans()) and (logic := standing.follow(SUM, store.chain(SUM))) is not None:
            shorten_backup(store, SUM, logic.state)
    restored, backup = Cells("sum", SLOT_BITS), retrieve_backup(store, SUM)
    assert backup is not None
    restored.restore(backup.state)
    ready = standing.take(SUM, store.chain(SUM)) or standing.follow(SUM, store.chain(SUM))
    assert ready is not None
    assert content(ready.state) == content(restored) == content(state)  # type: ignore[arg-type]


def retrieved(effects: list[Effect]) -> Retrieved:
    (effect,) = effects
    assert isinstance(effect, Post)
    assert isinstance(effect.body, Retrieved)
    return effect.body


def ready_holder(makes_standing: bool = True) -> Holder:
    holder = Holder("here", makes if makes_standing else None)
    effects = holder.on_store("owner's node", StoreBackup(checkpoint(5)))
    assert (Post("here", StandBy(SUM)) in effects) == makes_standing
    holder.on_stand_by(StandBy(SUM))
    return holder


def test_a_successor_on_the_holders_node_gets_the_state_itself_once() -> None:
    holder = ready_holder()
    first = retrieved(holder.on_retrieve("here", Retrieve(life(SUM, 1), SUM)))
    handed = holder.handed.take(life(SUM, 1))
    assert first.stands
    assert handed is not None
    assert first.checkpoint is not None
    assert (first.checkpoint.epoch, first.checkpoint.state, first.checkpoint.buffer != ()) == (5, (), True)
    assert isinstance(handed.state, Cells)
    assert content(handed.state) == content_of(checkpoint(5).state)
    again = retrieved(holder.on_retrieve("here", Retrieve(life(SUM, 2), SUM)))
    assert not again.stands
    assert len(holder.handed) == 0
    assert again.checkpoint is not None
    assert content_of(again.checkpoint.state) == content_of(checkpoint(5).state)


def content_of(chunks: tuple[object, ...]) -> dict[int, object]:
    state = Cells("sum", SLOT_BITS)
    state.restore(chunks)  # type: ignore[arg-type]
    return content(state)


def test_a_successor_elsewhere_gets_the_checkpoints() -> None:
    found = retrieved(ready_holder().on_retrieve("there", Retrieve(life(SUM, 1), SUM)))
    assert not found.stands
    assert found.checkpoint is not None
    assert found.checkpoint.state


def test_what_nobody_wants_to_stand_is_kept_as_checkpoints_alone() -> None:
    found = retrieved(ready_holder(makes_standing=False).on_retrieve("here", Retrieve(life(SUM, 1), SUM)))
    assert not found.stands


def test_of_an_instance_on_the_holders_own_node_nothing_stands_by() -> None:
    """It has its state; the holder only passes the checkpoints on until others have caught up."""
    holder = Holder(node_of(SUM), makes)
    holder.on_view(view_of(Topology.initial(GRAPH)))
    effects = holder.on_store(node_of(SUM), StoreBackup(checkpoint(5)))
    assert not [effect for effect in effects if isinstance(effect, Post) and isinstance(effect.body, StandBy)]


def test_with_the_backup_goes_what_stands() -> None:
    holder = ready_holder()
    holder.on_delete(DeleteBackup(SUM, (9, 9)))
    assert retrieved(holder.on_retrieve("here", Retrieve(life(SUM, 1), SUM))).checkpoint is None
