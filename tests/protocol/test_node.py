"""A node: hands each letter to whom it is for, starts and stops instances, and lets no peer run ahead of it."""

from __future__ import annotations

from typing import get_args

import pytest

from primitives.checkpoint import Checkpoint
from primitives.errors import InternalError
from primitives.graph import InstanceId
from primitives.topology import Topology
from seep.channels.wire import decode, encode
from seep.protocol import messages
from seep.protocol.effects import Effect, OpenSink, Post
from seep.protocol.instances.checkpointing import CheckpointSettings
from seep.protocol.instances.instance import InstancePhase
from seep.protocol.instances.sink import SinkInstance
from seep.protocol.instances.source import SourceInstance
from seep.protocol.instances.stateful import StatefulInstance
from seep.protocol.instances.stateless import StatelessInstance
from seep.protocol.messages import (
    Attach,
    BackupFound,
    BackupStored,
    Committed,
    Data,
    FindBackup,
    FromBackup,
    FromCommits,
    FromLog,
    FromNothing,
    Logged,
    NodeFenced,
    OffsetsRead,
    Restored,
    Retrieve,
    Retrieved,
    StandBy,
    StartInstance,
    StopInstance,
    StoreBackup,
    TakeCheckpoint,
    Tick,
    Trim,
    ViewAcknowledged,
    ViewChanged,
)
from seep.protocol.node import Node
from seep.protocol.view import MANAGER, Incarnation, Seat
from seep.simulator.operators import Rows
from tests.protocol.staging import (
    ALL,
    BATCHES,
    GRAPH,
    KEYS,
    NUMBERS,
    OUT,
    PASS,
    SUM,
    Operators,
    data,
    letter,
    letters,
    life,
    node_of,
    view_of,
)
from tests.protocol.test_holder import checkpoint

TOPOLOGY = Topology.initial(GRAPH)
ORIGINS: dict[InstanceId, FromLog | FromNothing | FromCommits] = {
    NUMBERS: FromLog(0, {}, {}, 0, False),
    PASS: FromNothing(0),
    SUM: FromNothing(0),
    OUT: FromCommits(0),
}  # fmt: skip


def begin(instance: InstanceId, number: int = 0) -> StartInstance:
    return StartInstance(life(instance, number), ORIGINS[instance], 0)


def tell(node: Node[Rows], body: object) -> list[Effect]:
    """A letter from the manager, who is never behind."""
    return node.receive(MANAGER, 0, body)


def node_with(*instances: InstanceId) -> Node[Rows]:
    node = Node("here", Operators(), BATCHES)
    seats = {instance: Seat("here", 0) for instance in instances}
    tell(node, ViewChanged(view_of(TOPOLOGY, 1, seats), tuple(begin(i) for i in instances)))
    return node


def later_view(**numbers: int) -> ViewChanged:
    """The second view; some instances live elsewhere now, in another incarnation."""
    seats = {InstanceId(operator, 0): Seat("elsewhere", number) for operator, number in numbers.items()}
    return ViewChanged(view_of(TOPOLOGY, 2, seats, idle=["here"]))


def backup(number: int = 0) -> StoreBackup:
    return StoreBackup(Checkpoint(SUM, number, 0, 5, None, ALL, (), (), 0))


# -- instances --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance", "kind"),
    [(NUMBERS, SourceInstance), (PASS, StatelessInstance), (SUM, StatefulInstance), (OUT, SinkInstance)],
)
def test_an_instance_is_made_as_its_operator_demands(instance: InstanceId, kind: type) -> None:
    assert {identity: type(made) for identity, made in node_with(instance).instances.items()} == {life(instance): kind}


def test_a_view_is_acknowledged_after_what_it_starts_has_begun() -> None:
    node = Node("here", Operators(), BATCHES)
    effects = tell(node, ViewChanged(view_of(TOPOLOGY, 7), (begin(OUT),)))
    assert effects == [OpenSink(life(OUT)), Post(MANAGER, ViewAcknowledged(7))]
    assert node.version == 7


def test_letters_reach_the_instance_that_they_are_for() -> None:
    node = node_with(NUMBERS, PASS, SUM)
    assert letter(tell(node, Tick(life(NUMBERS), 1, False)), OffsetsRead).source == life(NUMBERS)
    node.receive(node_of(PASS), 1, Attach(life(NUMBERS), life(PASS), 1))
    tell(node, Logged(life(NUMBERS), 1))
    sent = node.pull(life(NUMBERS), life(PASS))
    assert isinstance(sent, Data)
    node.receive_stream(sent)
    tell(node, Trim(life(NUMBERS), 1))
    assert {str(identity): made.processed for identity, made in node.instances.items()} == {
        "numbers[0]#0": 1,
        "pass[0]#0": 1,
        "sum[0]#0": 0,
    }
    assert len(node.instances[life(NUMBERS)].outbox) == 0
    assert letter(tell(node, TakeCheckpoint(life(SUM))), StoreBackup).checkpoint.owner == SUM


def test_every_message_that_names_an_instance_as_its_addressee_is_delivered_to_an_instance() -> None:
    kinds = {kind for kind in vars(messages).values() if isinstance(kind, type) and hasattr(kind, "addressee")}
    assert kinds == set(get_args(messages.InstanceMessage))


@pytest.mark.parametrize("stranger", [life(SUM, 1), life(InstanceId("sum", 1))])
def test_what_is_for_an_instance_that_is_not_here_is_nobodys_business(stranger: Incarnation) -> None:
    node = node_with(SUM)
    assert tell(node, TakeCheckpoint(stranger)) == []
    assert node.receive_stream(data(life(PASS), stranger, 1, [(KEYS[0], 1, 0)])) == []
    assert node.pull(stranger, life(OUT)) is None


def test_a_stopped_instance_is_gone_and_stopping_it_again_does_nothing() -> None:
    node = node_with(SUM, PASS)
    stopped = node.instances[life(SUM)]
    assert tell(node, StopInstance(life(SUM))) == tell(node, StopInstance(life(SUM))) == []
    assert stopped.phase is InstancePhase.HALTED
    assert list(node.instances) == [life(PASS)]


def test_a_node_that_was_given_up_stops_everything() -> None:
    node = node_with(SUM, OUT)
    instances = list(node.instances.values())
    assert tell(node, NodeFenced()) == []
    assert [instance.phase for instance in instances] == [InstancePhase.HALTED] * 2
    assert node.instances == {}


def test_a_part_of_a_split_is_started_beside_the_view() -> None:
    node = node_with(SUM)
    effects = tell(node, StartInstance(life(SUM, 1), FromBackup("holder", 3), 0))
    assert letters(effects, Retrieve) == [Retrieve(life(SUM, 1), SUM, 3)]
    assert set(node.instances) == {life(SUM), life(SUM, 1)}


def test_a_lost_link_concerns_all_instances_that_have_senders_behind_it() -> None:
    node = node_with(PASS, SUM)
    assert letters(node.reconnect(node_of(NUMBERS)), Attach) == [Attach(life(NUMBERS), life(PASS), 1)]
    assert letters(node.reconnect("here"), Attach) == [Attach(life(PASS), life(SUM), 1)]


# -- views ------------------------------------------------------------------------------------------------------------


def test_a_letter_written_under_a_later_view_waits_for_that_view() -> None:
    """The peer may speak of an instance that this node has not heard of yet."""
    node = node_with(NUMBERS)
    successor = Attach(life(NUMBERS), life(PASS, 1), 1)
    assert node.receive("elsewhere", 2, successor) == []
    tell(node, Tick(life(NUMBERS), 1, False))
    tell(node, Logged(life(NUMBERS), 1))
    assert node.pull(life(NUMBERS), life(PASS, 1)) is None
    tell(node, later_view(**{"pass": 1}))
    sent = node.pull(life(NUMBERS), life(PASS, 1))
    assert isinstance(sent, Data)


def test_letters_that_waited_are_taken_in_the_order_in_which_they_came() -> None:
    node = node_with(NUMBERS)
    for first in (1, 2):
        node.receive("elsewhere", 2, Attach(life(NUMBERS), life(PASS, 1), first))
    for epoch in (1, 2):
        tell(node, Tick(life(NUMBERS), epoch, False))
        tell(node, Logged(life(NUMBERS), epoch))
    tell(node, later_view(**{"pass": 1}))
    sent = node.pull(life(NUMBERS), life(PASS, 1))
    assert sent is not None
    assert sent.epoch == 2


def test_a_letter_from_beyond_the_next_view_goes_on_waiting() -> None:
    node = node_with(SUM)
    node.receive("elsewhere", 3, backup())
    assert letters(tell(node, later_view()), BackupStored) == []
    assert letters(tell(node, ViewChanged(view_of(TOPOLOGY, 3))), BackupStored) == [BackupStored(life(SUM), 5, (0, 0))]


def test_the_manager_is_never_waited_for() -> None:
    node = Node("fresh", Operators(), BATCHES)
    assert node.version == 0
    assert letter(node.receive(MANAGER, 9, FindBackup(life(SUM))), BackupFound).epoch is None


def test_an_instance_that_the_view_has_replaced_halts_and_is_forgotten() -> None:
    node = node_with(SUM)
    replaced = node.instances[life(SUM)]
    tell(node, later_view(sum=1))
    assert replaced.phase is InstancePhase.HALTED
    assert life(SUM) not in node.instances


# -- backups ----------------------------------------------------------------------------------------------------------


def test_a_node_keeps_backups_for_instances_on_other_nodes() -> None:
    node = node_with(PASS)
    assert node.receive("owner's node", 1, backup()) == [Post(MANAGER, BackupStored(life(SUM), 5, (0, 0)))]
    answer = letter(node.receive("new home", 1, Retrieve(life(SUM, 1), SUM)), Retrieved)
    assert answer.checkpoint is not None
    assert answer.checkpoint.epoch == 5


def test_a_view_fences_the_incarnations_that_it_replaces() -> None:
    node = node_with(PASS)
    tell(node, later_view(sum=1))
    assert letters(node.receive("zombie", 1, backup()), BackupStored) == []
    assert letters(node.receive("elsewhere", 2, backup(number=1)), BackupStored) == [
        BackupStored(life(SUM, 1), 5, (1, 0))
    ]


# -- letters that nobody takes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", [Committed(life(OUT), 1), "no letter"])
def test_a_node_names_a_letter_that_it_has_no_use_for(letter: object) -> None:
    with pytest.raises(InternalError, match=r"node here has no use for a letter of manager: .*(Committed|no letter)"):
        tell(node_with(OUT), letter)


def test_an_instance_names_a_message_that_its_kind_does_not_take() -> None:
    with pytest.raises(InternalError, match=r"out\[0\]#0 has no use for Tick"):
        node_with(OUT).deliver(life(OUT), Tick(life(NUMBERS), 1, False))


# -- state that stands ready ------------------------------------------------------------------------------------------


def node_with_standing_state() -> Node[Rows]:
    """It keeps a backup of `sum[0]`, whose state stands ready, and starts the instance's successor."""
    node = Node("here", Operators(), BATCHES, CheckpointSettings(stands=True))
    tell(node, ViewChanged(view_of(TOPOLOGY, 1)))
    node.receive(node_of(SUM), 1, StoreBackup(checkpoint(5)))
    tell(node, StandBy(SUM))
    view = view_of(TOPOLOGY, 2, {SUM: Seat("here", 1)})
    tell(node, ViewChanged(view, (StartInstance(life(SUM, 1), FromBackup("here"), 0),)))
    return node


def test_the_letter_says_that_state_stands_ready_and_the_instance_takes_it_from_its_node() -> None:
    node = node_with_standing_state()
    answer = letter(node.receive("here", 2, Retrieve(life(SUM, 1), SUM)), Retrieved)
    assert answer.stands
    assert len(node.holder.handed) == 1
    assert decode(encode(answer)) == answer
    assert letter(node.receive("here", 2, answer), Restored).stood
    assert len(node.holder.handed) == 0


def test_state_that_stands_ready_for_an_instance_that_was_stopped_is_let_go() -> None:
    node = node_with_standing_state()
    answer = letter(node.receive("here", 2, Retrieve(life(SUM, 1), SUM)), Retrieved)
    tell(node, StopInstance(life(SUM, 1)))
    late = node_with_standing_state()
    tell(late, StopInstance(life(SUM, 1)))
    late.receive("here", 2, letter(late.receive("here", 2, Retrieve(life(SUM, 1), SUM)), Retrieved))
    assert (node.receive("here", 2, answer), len(node.holder.handed), len(late.holder.handed)) == ([], 0, 0)
