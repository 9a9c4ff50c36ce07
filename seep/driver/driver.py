"""The manager's process: the shell of the `Manager` in the driver, with its port, clock and failure detector."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, assert_never

from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
from primitives.event import Event
from primitives.graph import InstanceId
from seep.channels.letters import (
    EndNode,
    EventTold,
    ForgetPeers,
    FromNode,
    InstanceLeft,
    KnowPeers,
    LastWord,
    LinesLogged,
    NodeFailed,
    NodeReady,
    NoticeGiven,
    SayLastWord,
    ToNode,
)
from seep.channels.peers import Peers, PeersReceiver
from seep.channels.port import Address, Port
from seep.channels.security import Security
from seep.driver import queries
from seep.driver.detector import SILENT, Detector
from seep.driver.listener import Listeners, RunListener
from seep.driver.manager_access import ManagerAccess
from seep.driver.node_register import NodeRecord, NodeRegister
from seep.driver.options import RunOptions
from seep.driver.slot_counting import SlotCounting
from seep.durable.backups import StorageHolder
from seep.node.failures import failure_from_json, manager_failure
from seep.node.stores import DriverStores
from seep.protocol.cuts import Beginning, CutAbandoned, CutComplete, Persist, Recall
from seep.protocol.effects import Commit, Effect, Finished, LogOffsets, OpenSink, Post, StateLost, Wake
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.state import QueryPhase
from seep.protocol.message_ring import dumped
from seep.protocol.messages import Committed, Data, NodeFenced, StopInstance
from seep.protocol.view import MANAGER, STORAGE, Incarnation
from seep.query.program import Program
from seep.record.events import NodeJoined, NodeNotice, RefusedMessage, RunFailed, RunFinished, RunHalted
from seep.record.observer import SourceDemand
from seep.record.record import Record
from seep.record.reports import MalformedReport
from seep.record.tally import LastWords
from seep.threads.event_loop import EventLoop
from seep.threads.worker import Worker

Service = Callable[[Mapping[str, Any]], Any]

#: Seconds between two checks for lost nodes, if nothing else happens.
_WATCH = 0.02


class ManagerProcess(ManagerAccess, PeersReceiver):
    """Runs a `Manager` on an event loop, which owns all mutable state here; other threads send it requests.

    Other threads may read immutable values, which are replaced as a whole: `nodes`, each source's `positions`,
    `failure`; and `ended`, an event.
    """

    def __init__(
        self,
        program: Program,
        options: RunOptions,
        interface: str,
        host: str,
        security: Security,
        run: str,
    ) -> None:
        self._host = host
        self.program, self.options = program, options
        self.stores = DriverStores(program)
        self._storage = StorageHolder(options.storage, program.name, run, self)
        self._register = NodeRegister()
        #: source operator -> partition -> position in the source log; each inner mapping is replaced, never changed
        read = self._beginning.positions if self._beginning else {}
        self.positions: dict[str, dict[int, Any]] = {o: dict(read.get(o, {})) for o in program.sources}
        self.record = Record(program.graph, _demands(program), self.positions, time.monotonic, time.time, run)
        self.events = self.record.log
        self.slot_counting = SlotCounting(self.record, self._tell_nodes, options.heartbeat)
        self.failure: SeepError | None = None
        self.story: dict[str, tuple[str, ...]] = {}  #: after an internal error: the last actions of the machines
        self._last_words = LastWords(options.patience)
        self._is_ending = False  #: nothing new begins: it waits for the nodes' last reports
        self.ended = threading.Event()
        self._listeners = Listeners()
        self.chores = Worker("seep chores")  #: cleans up after lost nodes; what fails is repeated at the end
        self._is_started = self._is_told_ending = self._is_told_over = False
        #: whether the last pulse found the window of epochs full, and whether a commit has made room since
        self._late = self._overdue = False
        #: the times of the next epoch, and of the next check for lost nodes
        self._next_tick = self._next_watch = time.monotonic()
        self._detector = Detector(options.patience)
        self.manager = Manager(program.graph, program.parallelism, options.manager_settings(program), self._beginning)
        #: the last messages and answers of the driver's machines, by name
        self.rings = {MANAGER: self.manager.ring}
        self._loop = EventLoop("seep manager", self._on_time, self._on_failure)
        self._port = Port(interface, security, self)
        self.peers = Peers(MANAGER, security, self)
        #: the calls of nodes, Spark's tasks and other processes that have the run's secret
        self._services: dict[str, Service] = {
            "register": self._registered,
            "sink open": self.stores.open,
            "sink commit": self.stores.commit,
        }

    @property
    def _beginning(self) -> Beginning | None:
        return self.program.resume.beginning if self.program.resume else None

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """The registered nodes by name, without those lost long ago; an immutable value."""
        return self._register.records

    @property
    def address(self) -> Address:
        """The address at which nodes reach the manager."""
        return Address(self._host, self._port.address.port)

    # -- for the run: any thread --------------------------------------------------------------------------------------

    def subscribe(self, listener: RunListener) -> None:
        """Adds a listener for notices of the event loop; before `start`, so that it misses nothing."""
        if self._is_started:
            raise InternalError("who listens to the event loop must say so before it is started")
        self._listeners.add(listener)

    def serve(self, method: str, service: Service) -> None:
        """Registers a service that other processes call by name, on threads of the port; before `start`."""
        self._services[method] = service

    def start(self) -> None:
        """Starts the event loop."""
        self._is_started = True
        self._loop.start()

    def launch(self, placement: Mapping[InstanceId, str] | None = None) -> None:
        """Starts the query on the nodes that have registered."""
        self.on_loop(partial(self._launch, placement))

    def conclude(self, detail: str) -> None:
        """Finishes the run: all input is processed, committed, and stored if there is a storage."""
        self.on_loop(partial(self._conclude, RunFinished(why=detail)))

    def conclude_unchanged(self) -> None:
        """Finishes a run without new input: its output was written before, and is not written again."""
        resume = self.program.resume
        assert resume is not None
        self.conclude(
            f"nothing new to read since checkpoint {resume.checkpoint}, which has all input; restore='none' (--restore "
            "none) begins from nothing"
        )

    def halt(self) -> None:
        """Ends the run at once, before the end of its input."""
        self.on_loop(partial(self._conclude, RunHalted(why="as somebody asked for")))

    def fail(self, failure: SeepError) -> None:
        """Fails the run."""
        with suppress(EnvironmentFault):  # the event loop does it as soon as it runs again
            self.on_loop(partial(self._fail, failure))

    @property
    def is_concluding(self) -> bool:
        """Whether nothing new begins: the run is over, or waits for the nodes' last reports."""
        return self._is_ending or self.ended.is_set()

    def knows(self, order: str) -> bool:
        """Whether a node of this order has ever registered."""
        return bool(self._register.of_order(order))

    def task_ended(self, order: str, why: str) -> None:
        """Records that the task of a node has ended, as reported by Spark."""
        for record in self._register.of_order(order):
            self._loop.put(partial(self._detector.ended, record.name, why))

    def slot_load(self, operator: str) -> Mapping[str, Any]:
        """Returns owners and rates of an operator's slots; has nodes count its rows by slot for a while."""
        return self.on_loop(partial(self._slot_load, operator))

    def tell_nodes(self, body: ToNode) -> None:
        """Sends all live nodes a letter that is not part of the protocol."""
        self._loop.put(partial(self._tell_nodes, body))

    def call_node(self, name: str, method: str, body: Mapping[str, Any]) -> Any:
        """Calls a node and waits for its answer; raises EnvironmentFault if it is lost, or refuses."""
        link = self.peers.link(name)
        if link is None:
            raise EnvironmentFault(f"node {name} is gone")
        return link.call(method, body)

    def killed(self, name: str) -> None:
        """Records that a node is about to be killed on purpose."""
        self.on_loop(partial(self._note_kill, name))

    def used_nodes(self) -> frozenset[str]:
        """Returns the nodes that must not be stopped: they host instances, or have still to send their last report."""
        return self.on_loop(self._used_nodes)

    def machine_story(self) -> dict[str, tuple[str, ...]]:
        """Returns the last messages and answers of the manager, and of each node and instance that responds."""
        told = self.on_loop(partial(dumped, self.rings))
        for name in sorted(self.live_nodes()):
            with suppress(EnvironmentFault):  # it is about to be lost
                told.update(self.call_node(name, "story", {}))
        return told

    def committed(self) -> int:
        """Returns the last epoch that all sinks have committed; for the manager's thread."""
        return self.manager.committed

    def close(self) -> None:
        """Tells all nodes to end, including those that have not joined yet, and ends the event loop."""
        self._loop.put(self._end_all)
        self._loop.close()

    def close_port(self) -> None:
        self.peers.close()
        self._port.close()
        self.chores.close()
        self.stores.close()
        self._clear_storage()

    # -- events of the port -------------------------------------------------------------------------------------------

    def admits(self, peer: str) -> bool:
        """State and letters from a process that is no node of the run are dropped."""
        return peer in self.nodes

    def on_message(self, message: Data, nbytes: int) -> None:
        raise InternalError(f"the manager takes no stream messages; {message.sender} sent one of {nbytes} bytes")

    def on_call(self, peer: str, method: str, body: Any) -> Any:
        if method not in self._services:
            raise UserError(f"the manager does not know the call {method!r} of {peer}")
        return self._services[method](body)

    def on_fault(self, peer: str, text: str) -> None:
        self.events.add(RefusedMessage(sender=peer, why=text))

    def _registered(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a node's first call, which waits for its name."""
        return self.on_loop(partial(self._enter, body))

    # -- messages of peers ---------------------------------------------------------------------------------------------

    def on_letter(self, peer: str, version: int, body: Any) -> None:  # noqa: ARG002
        self._loop.put(partial(self._on_letter, peer, body))

    def on_heartbeat(self, peer: str, body: Any) -> None:
        self._loop.put(partial(self._on_heartbeat, peer, body))

    def on_link_broken(self, peer: str, refused: bool) -> None:
        self._loop.put(partial(self._detector.broken, peer, refused))
        self._loop.put(partial(self._listeners.link, peer, "refused" if refused else "broken"))

    def on_link_restored(self, peer: str) -> None:
        self._loop.put(partial(self._detector.restored, peer, time.monotonic()))
        self._loop.put(partial(self._listeners.link, peer, "restored"))

    def on_unsendable(self, peer: str, reason: Exception) -> None:  # noqa: ARG002
        self._loop.put(partial(self._fail, manager_failure(reason)))

    # -- on the manager's thread --------------------------------------------------------------------------------------

    def _on_time(self, now: float) -> float:
        """Does what is due; returns the time when something is due next."""
        if now >= self._next_tick or self._overdue:
            planned = self._next_tick if now >= self._next_tick else now
            self._next_tick = max(planned + self.options.epoch, now)
            self._pulse()
        if now >= self._next_watch:
            self._next_watch = now + _WATCH
            self._watch(now)
        self._tell_phase()
        return min(self._next_tick, self._next_watch)

    def _tell_phase(self) -> None:
        """Notifies listeners once that the run is ending, and once that it is over."""
        if self.manager.ending and not self._is_told_ending:
            self._is_told_ending = True
            self._listeners.ending()
        if self.ended.is_set() and not self._is_told_over:
            self._is_told_over = True
            self._listeners.over()

    def _on_failure(self, reason: BaseException) -> None:
        """Fails the run, because the manager itself has failed."""
        self._fail(manager_failure(reason))

    def _fail(self, failure: SeepError) -> None:
        if self.failure is None and not self.is_concluding:
            if isinstance(failure, InternalError):
                self.story.update(dumped(self.rings))
                failure = InternalError(f"{failure}\nThe report has under 'story' what the machines did last.")
            self.failure = failure
            self.events.add(RunFailed(why=str(failure)))
            self.ended.set()

    def _launch(self, placement: Mapping[InstanceId, str] | None) -> None:
        self.record.begin()
        self.perform(self.manager.launch(placement))

    def _enter(self, body: Mapping[str, Any]) -> dict[str, Any]:
        record = self._register.enter(body)
        self.peers.know(record.name, record.address)
        self._listeners.registered(record)
        if self.ended.is_set():
            self.peers.post(record.name, 0, EndNode())
        return {"name": record.name}

    def _tell_nodes(self, body: ToNode) -> None:
        for name in self.manager.nodes:
            self.peers.post(name, 0, body)

    def _end_all(self) -> None:
        self.ended.set()
        for name in self.nodes:
            self.peers.post(name, 0, EndNode())

    def _slot_load(self, operator: str) -> Mapping[str, Any]:
        if not self.ended.is_set():
            self.slot_counting.look(operator, time.monotonic())
        return self.record.slot_load(operator, queries.latest_assignment(self.manager, operator))

    def _note_kill(self, name: str) -> None:
        self.record.killed(name, self.manager.placement)

    def _used_nodes(self) -> frozenset[str]:
        return frozenset(self.manager.used_nodes() | self._last_words.nodes)

    def _pulse(self) -> None:
        """Opens the next epoch; if the window does not allow it now, the next commit does."""
        if self.is_concluding:
            return
        before = self.manager.ticked
        self.perform(self.manager.pulse())
        self._overdue = False
        self._late = self.manager.ticked == before

    def _watch(self, now: float) -> None:
        for node, why in self._detector.lost(now):
            self._lose(node, why)
        if self._last_words.overdue(now):
            self.record.unheard()
        self.slot_counting.expire(now)
        self._end_when_heard()

    def _on_letter(self, peer: str, body: Any) -> None:
        self._detector.heard(peer, time.monotonic())
        if isinstance(body, FromNode):
            self._on_word(peer, body)
            return
        self.perform(self.manager.receive(peer, body))
        if isinstance(body, Committed):
            self._overdue = self._late
            self._note_commit()

    def _on_word(self, peer: str, word: FromNode) -> None:
        """Handles a letter of a node that is not part of the protocol."""
        match word:
            case NodeReady():
                self._join(peer)
            case InstanceLeft(last_word):
                self._note(peer, self.record.left, last_word)
                self._last_words.heard(last_word.identity)
                self._end_when_heard()
            case LastWord(report):
                self._note(peer, self.record.take, report)
                self._last_words.heard(peer)
                self._end_when_heard()
            case NodeFailed(failure, story):
                if peer in self.manager.nodes:
                    self.story.update(story)
                    self._fail(failure_from_json(failure))
            case NoticeGiven(seconds):
                self.events.add(NodeNotice(node=peer, left=seconds))
                self._listeners.notice(peer, seconds)
            case EventTold(event):
                self.events.add(event)
            case LinesLogged():
                self._listeners.logged(peer, word)
            case _:
                assert_never(word)

    def _on_heartbeat(self, peer: str, report: Any) -> None:
        now = time.monotonic()
        self._detector.heard(peer, now)
        if peer not in self.manager.nodes and peer not in self._register.waiting:
            self.peers.post(peer, 0, NodeFenced())
        elif report is not None:
            self._note(peer, self.record.take, report)

    def _note(self, node: str, note: Callable[[str, object], None], told: object) -> None:
        """Records a report of a live node; an invalid report becomes an event, and has no other effect."""
        if node in self.manager.nodes:
            try:
                note(node, told)
            except MalformedReport as reason:
                self.events.add(RefusedMessage(sender=node, why=str(reason)))

    def _join(self, name: str) -> None:
        """Tells all other nodes the address of a new node, before a view names it."""
        record = self._register.joined(name)
        live = {node: self._listens(node) for node in self.manager.nodes}
        self.peers.post(name, 0, KnowPeers(live))
        self.peers.post(name, 0, self.slot_counting.letter)
        for node in live:
            self.peers.post(node, 0, KnowPeers({name: self._listens(name)}))
        self._detector.joined(name, time.monotonic())
        self.events.add(NodeJoined(node=name))
        self.perform(self.manager.node_joined(name, record.vm))
        self._listeners.joined(record)

    def _listens(self, name: str) -> tuple[str, int]:
        address = self.nodes[name].address
        return address.host, address.port

    def _lose(self, name: str, why: str) -> None:
        self.record.given_up(name, why, self.manager.placement, self.manager.ticked)
        self._count_lost(name)
        self.perform(self.manager.node_lost(name))
        self._tell_nodes(ForgetPeers((name,)))
        silent = why.startswith(SILENT)
        if not silent:  # a silent one may still exist, and is told that it is fenced if it sends anything
            self.peers.forget(name)
        self._listeners.lost(self.nodes[name], silent)
        forgotten = self._register.lost(name)
        if forgotten is not None and forgotten.process.is_local:
            self.chores.put(partial(shutil.rmtree, forgotten.directory, ignore_errors=True))

    def _count_lost(self, name: str) -> None:
        """Keeps the counts of the instances on a lost node that will not be counted again by others."""
        is_replayed = self.manager.phase is QueryPhase.RUNNING
        for instance in self.manager.roster.living_on(name):
            up_to = self._kept_up_to(instance) if is_replayed else None
            self.record.lost(self.manager.roster.incarnation(instance), up_to)
        if self._last_words.lost(name):
            self.record.unheard()
        self.record.drop(name)

    def _kept_up_to(self, instance: InstanceId) -> int:
        """Returns the last epoch that the replacement of an instance does not process again."""
        safe = self.manager.safe
        return min(safe.of(instance), safe.trimmed[instance])

    # -- the end ------------------------------------------------------------------------------------------------------

    def _conclude(self, end: RunFinished | RunHalted) -> None:
        if not self._is_ending and not self.ended.is_set():
            self.events.add(end)
            self._await_last_words()

    def _await_last_words(self) -> None:
        """Asks all used nodes for their last reports; the run is over when these have arrived, or are overdue."""
        self._is_ending = True
        for node in {seat.node for seat in self.manager.placement.values()} & self.manager.nodes.keys():
            self._last_words.expect(node, node, time.monotonic())
            self.peers.post(node, 0, SayLastWord())
        self._end_when_heard()

    def _end_when_heard(self) -> None:
        if self._is_ending and not self._last_words.nodes:
            self.ended.set()

    def _note_stopped(self, node: str, identity: Incarnation) -> None:
        """Records that an instance is told to stop: it sends a last report, or its rows are counted again elsewhere."""
        seat = self.manager.placement.get(identity.instance)
        if seat is not None and seat.incarnation > identity.number:
            self.record.lost(identity, self._kept_up_to(identity.instance))
        else:
            self._last_words.expect(identity, node, time.monotonic())

    def _note_commit(self) -> None:
        epoch = self.committed()
        if self.record.committed(epoch):
            self._listeners.committed(epoch)

    # -- effects ------------------------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Carries out the effects of the manager; on the event loop."""
        for effect in effects:
            match effect:
                case Post(to, body) if to == STORAGE:
                    self._storage.ask(MANAGER, body)
                case Post(to, body):
                    if isinstance(body, StopInstance):
                        self._note_stopped(to, body.identity)
                    self.peers.post(to, 0, body)
                case LogOffsets(source, _, positions):
                    self.positions[source.operator] = {**self.positions[source.operator], **positions}
                    self._listeners.read(source.operator)
                case Event():
                    self.record.tell(effect)
                case Finished(epoch):
                    if not self.manager.settings.last_cut:  # otherwise the archivist concludes when it is stored
                        self._conclude(RunFinished(why=f"at epoch {epoch}"))
                case CutComplete(cut):
                    self._listeners.cut(cut, effect)
                case CutAbandoned(cut, why):
                    self._listeners.cut(cut, why)
                case StateLost():
                    self._fail(EnvironmentFault(str(effect)))
                case Persist() | Recall() | Wake() | OpenSink() | Commit():
                    raise InternalError(f"the manager wants what only an instance may: {effect!r:.200}")
                case _:
                    assert_never(effect)

    def on_answer(self, to: str, body: Any) -> None:  # noqa: ARG002
        self._loop.put(partial(self._on_stored, body))

    def _on_stored(self, body: Any) -> None:
        self.perform(self.manager.receive(STORAGE, body))

    def _clear_storage(self) -> None:
        """Removes the backups of this run, which no other run can use."""
        if self.manager.replication.has_used_storage:
            self._storage.close()
            self._storage.clear()

    def on_storage_failed(self, reason: BaseException) -> None:
        self._loop.put(partial(self._on_failure, reason))


def _demands(program: Program) -> dict[str, SourceDemand]:
    return {
        name: SourceDemand(setting.rate, definition.partitions, definition.by_time)
        for name, (definition, setting) in program.sources.items()
    }
