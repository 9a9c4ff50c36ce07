"""The state that the machines of the manager share: settings, knowledge of the query, and effects so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Topology
from seep.protocol.cuts import Beginning
from seep.protocol.effects import Effect, Post
from seep.protocol.manager.plans import OpenPlans
from seep.protocol.manager.roster import Roster
from seep.protocol.manager.safety import SafeEpochs
from seep.protocol.manager.source_log import SourceLog
from seep.protocol.messages import InstanceMessage, StartInstance


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    window: int = 16  #: epochs that may be open at once, from tick to commit (back-pressure)
    lead: int = 2  #: epochs between the announcement of a plan and its effect
    warm_up: bool = True  #: fetch state from backups ahead of a handover
    trim_every: int = 1  #: the number of pulses between two computations of what may be trimmed
    recovery_parallelism: int = 1  #: the number of instances that recover a failed stateful one
    #: operator -> pulses for which a holder may be behind the others of its chain; without an entry, forever
    patience: Mapping[str, int] = field(default_factory=dict)
    unkept: frozenset[str] = frozenset()  #: operators whose state is not backed up: it may be lost
    cut_chain: int = 8  #: the number of cuts that may build on one another before the next one has all state
    last_cut: bool = False  #: whether the query ends with a requested cut after its final epoch; see `persist`


class QueryPhase(Enum):
    WAITING = "waiting"  #: not launched
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class ManagerState:
    """The data that more than one machine of the manager reads or changes. It decides nothing."""

    def __init__(
        self, graph: QueryGraph, parallelism: Mapping[str, int] | None, settings: ManagerSettings, beginning: Beginning
    ) -> None:
        self.graph = graph
        self.settings = settings
        self.beginning = beginning
        self.phase = QueryPhase.WAITING
        self.topology = Topology.initial(graph, parallelism, beginning.epoch + 1)
        self.roster = Roster(beginning.first_incarnation)
        self.safe = SafeEpochs(graph, settings.unkept)
        self.log = SourceLog()
        self.plans = OpenPlans()
        #: the number of pulses so far
        self.pulses = 0
        #: the last epoch that was opened, and the one after which the query ends, once that is known
        self.ticked = beginning.epoch
        self.final: int | None = None
        #: whether the input has ended or has been told to end
        self.ending = False
        #: the version of the newest view, and whether there is a change that it does not have
        self.version = 0
        self.view_is_old = False
        #: node -> the instances that it starts with the next view
        self.starts: dict[str, list[StartInstance]] = {}
        #: effects for the shell, in order, since they were last fetched
        self.effects: list[Effect] = []

    def post(self, to: str, body: object) -> None:
        """Adds a letter to the effects."""
        self.effects.append(Post(to, body))

    def post_to_instance(self, message: InstanceMessage) -> None:
        """Adds a letter to the node of the message's addressee."""
        self.post(self.roster.placement[message.addressee.instance].node, message)

    def live_instances(self, kind: Kind) -> list[InstanceId]:
        """Returns the instances of one kind of operator whose nodes are live."""
        return [i for i in self.roster.placement if self.graph.kind(i.operator) is kind and self.roster.is_live(i)]

    def latest_slots(self, instance: InstanceId) -> SlotSet:
        """Returns the slots of an instance in the newest version of its operator's topology."""
        return self.topology.history[instance.operator][-1].assignment.slots_of(instance.index)
