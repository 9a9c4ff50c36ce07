"""A node as a state machine: hosts instances, keeps backups for others, and passes each message to its receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from primitives.emission import Batches, Emission
from primitives.errors import InternalError
from primitives.graph import Kind
from primitives.outbox import Outbox
from seep.protocol.effects import Effect, Post
from seep.protocol.holder import Holder, HolderLetter
from seep.protocol.instances.checkpointing import CheckpointSettings
from seep.protocol.instances.instance import Instance, InstancePhase, Surroundings
from seep.protocol.instances.sink import SinkInstance
from seep.protocol.instances.source import SourceInstance
from seep.protocol.instances.stateful import StatefulInstance
from seep.protocol.instances.stateless import StatelessInstance
from seep.protocol.logic import Logic, SourceLogic
from seep.protocol.message_ring import MessageRing
from seep.protocol.messages import (
    Data,
    InstanceMessage,
    NodeFenced,
    StartInstance,
    StopInstance,
    ViewAcknowledged,
    ViewChanged,
)
from seep.protocol.standing import HandedStates
from seep.protocol.view import MANAGER, Incarnation, View

Batch = TypeVar("Batch")


class Operators(Protocol[Batch]):
    """A factory of operators' logic: called once for every instance that starts."""

    def logic(self, operator: str) -> Logic[Batch]: ...

    def source(self, operator: str) -> SourceLogic[Batch]: ...

    def standing(self, operator: str) -> Logic[Batch] | None:
        """Returns an operator whose state can be kept ready for an instance elsewhere; None if that is not possible."""
        ...


#: A factory of empty outboxes, with a place to spill to if there is one.
Outboxes = Callable[[Incarnation], Outbox[Emission[Batch]]]


class Hosted(Protocol):
    """The node's interface to an instance: calls it directly, or through a mailbox in front of it."""

    def start(self, origin: Any, trimmed: int = 0) -> list[Effect]: ...

    def handle(self, message: object) -> list[Effect]: ...

    def reconnect(self, peer: str) -> list[Effect]: ...

    def pull(self, receiver: Incarnation) -> Data | None: ...

    def halt(self) -> None: ...


class HostsBackups(Protocol):
    """The node's interface to its holder: calls it directly, or through a mailbox in front of it."""

    def on_view(self, view: View) -> None: ...

    def receive(self, sender: str, letter: HolderLetter) -> list[Effect]: ...


class Hosting(Protocol[Batch]):
    """The way in which a node runs its instances and its holder. A shell may put each on a thread behind a mailbox.

    The order stays right: the consequences of the node's answer reach the mailbox later.
    """

    def instance(self, instance: Instance[Batch]) -> Hosted: ...

    def holder(self, holder: Holder) -> HostsBackups: ...


class DirectHosting:
    """Hosting on one thread: instances and the holder work in the call that brings a message."""

    def instance(self, instance: Instance[Batch]) -> Instance[Batch]:
        return instance

    def holder(self, holder: Holder) -> Holder:
        return holder


def _in_memory(_: Incarnation) -> Outbox[Any]:
    return Outbox()


class Node(Generic[Batch]):
    """One process of the query. Its name is never used again after the node was given up."""

    def __init__(
        self,
        name: str,
        operators: Operators[Batch],
        batches: Batches[Batch],
        settings: CheckpointSettings | Mapping[str, CheckpointSettings] | None = None,
        outboxes: Outboxes[Batch] | None = None,
        hosting: Hosting[Batch] | None = None,
    ) -> None:
        self.name = name
        self.view: View | None = None
        #: the machines; a shell may run them on threads of their own
        self.instances: dict[Incarnation, Instance[Batch]] = {}
        self._hosted: dict[Incarnation, Hosted] = {}
        self._hosting: Hosting[Batch] = hosting or DirectHosting()
        self._operators = operators
        self._batches = batches
        #: settings of checkpoints, for all operators alike or by operator
        self._settings = settings or CheckpointSettings()
        self._handed = HandedStates()
        self.holder = Holder(name, self._standing, self._handed)
        self._backups = self._hosting.holder(self.holder)
        self._outboxes = outboxes or _in_memory
        self._validated = -1  #: the last view at which `validate` has checked everything
        #: letters from peers that have seen a later view than this node
        self._deferred: list[tuple[str, int, Any]] = []
        self.ring = MessageRing()

    @property
    def version(self) -> int:
        """The version of the view under which this node writes its letters."""
        return self.view.version if self.view else 0

    def receive(self, sender: str, version: int, body: Any) -> list[Effect]:
        """Takes a letter; one that was written under a later view waits until that view arrives."""
        if sender != MANAGER and version > self.version:
            self._deferred.append((sender, version, body))
            return []
        self.ring.took(sender, body)
        match body:
            case StartInstance():
                return self._start(body)
            case StopInstance(identity):
                return self._stop(identity)
            case ViewChanged(view, starts):
                return self._on_view(view, starts)
            case NodeFenced():
                return self._halt()
        if isinstance(body, InstanceMessage):
            return self.deliver(body.addressee, body)
        if isinstance(body, HolderLetter):
            return self._backups.receive(sender, body)
        raise InternalError(f"node {self.name} has no use for a letter of {sender}: {body!r:.200}")

    def receive_stream(self, message: Data) -> list[Effect]:
        """Takes a stream message."""
        return self.deliver(message.addressee, message)

    def deliver(self, to: Incarnation, message: object) -> list[Effect]:
        """Passes a message to an instance; drops it if the instance has ended or has not begun here."""
        hosted = self._hosted.get(to)
        if hosted is None:
            self._handed.take(to)
            return []
        return hosted.handle(message)

    def reconnect(self, peer: str) -> list[Effect]:
        """Handles that the link to another node was lost and has reconnected."""
        return [effect for hosted in self._hosted.values() for effect in hosted.reconnect(peer)]

    def pull(self, sender: Incarnation, receiver: Incarnation) -> Data | None:
        """Returns the next message of a stream that starts here."""
        hosted = self._hosted.get(sender)
        return hosted.pull(receiver) if hosted else None

    # -- instances ----------------------------------------------------------------------------------------------------

    def _start(self, message: StartInstance) -> list[Effect]:
        instance = self.instances[message.identity] = self._make(message.identity)
        hosted = self._hosted[message.identity] = self._hosting.instance(instance)
        return hosted.start(message.origin, message.trimmed)

    def _make(self, me: Incarnation) -> Instance[Batch]:
        assert self.view is not None
        operator = me.instance.operator
        given = Surroundings(self.name, self.view, self._batches, self._outboxes(me), self._handed)
        match self.view.topology.graph.kind(operator):
            case Kind.SOURCE:
                return SourceInstance(me, given, self._operators.source(operator))
            case Kind.SINK:
                return SinkInstance(me, given)
            case Kind.STATELESS:
                return StatelessInstance(me, given, self._operators.logic(operator))
            case Kind.STATEFUL:
                return StatefulInstance(me, given, self._operators.logic(operator), self._settings_of(operator))
        raise InternalError(f"{me} is of no known kind")

    def _settings_of(self, operator: str) -> CheckpointSettings:
        return self._settings if isinstance(self._settings, CheckpointSettings) else self._settings[operator]

    def _standing(self, operator: str) -> Logic[Batch] | None:
        return self._operators.standing(operator) if self._settings_of(operator).stands else None

    def _stop(self, identity: Incarnation) -> list[Effect]:
        self.instances.pop(identity, None)
        hosted = self._hosted.pop(identity, None)
        if hosted:
            hosted.halt()
        self._handed.take(identity)
        return []

    def _halt(self) -> list[Effect]:
        for identity in list(self._hosted):
            self._stop(identity)
        return []

    # -- invariants ---------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises InternalError with each rule that does not hold between two calls; for one thread only."""
        broken = [*self._broken_rules(), *(text for each in self.instances.values() for text in each.broken_rules())]
        if self._validated != self.version:
            self._validated = self.version
            broken += self.holder.broken_rules()
        if broken:
            raise InternalError(f"node {self.name}, at view {self.version}: {'; '.join(broken)}")

    def _broken_rules(self) -> Iterator[str]:
        if self.instances.keys() != self._hosted.keys():
            yield f"it has {len(self.instances)} instances, and hosts {len(self._hosted)}"
        for _, version, body in self._deferred:
            if version <= self.version:
                yield f"a letter of view {version} still waits: {body!r:.100}"
        running = [me.instance for me, each in self.instances.items() if each.phase is InstancePhase.RUNNING]
        if len(set(running)) < len(running):
            yield f"of an instance two incarnations run: {', '.join(map(str, sorted(running)))}"

    # -- views --------------------------------------------------------------------------------------------------------

    def _on_view(self, view: View, starts: tuple[StartInstance, ...]) -> list[Effect]:
        self.view = view
        self._backups.on_view(view)
        effects = [effect for hosted in list(self._hosted.values()) for effect in hosted.handle(view)]
        for identity in [identity for identity in self._hosted if view.is_fenced(identity)]:
            self._stop(identity)
        for start in starts:
            effects += self._start(start)
        effects.append(Post(MANAGER, ViewAcknowledged(view.version)))
        return effects + self._catch_up()

    def _catch_up(self) -> list[Effect]:
        ripe = [letter for letter in self._deferred if letter[1] <= self.version]
        self._deferred = [letter for letter in self._deferred if letter[1] > self.version]
        return [effect for letter in ripe for effect in self.receive(*letter)]
