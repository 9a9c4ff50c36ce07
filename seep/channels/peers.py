"""Peers: exchanges letters and state with every other process, over links that may break and reconnect."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from primitives.mapped import MappedFiles
from seep.channels.bulk import CREDIT, BulkLane, BulkPrecedence
from seep.channels.bulk_arrivals import BulkArrivals
from seep.channels.dial import Direction
from seep.channels.links import Link
from seep.channels.port import Address
from seep.channels.recent import Recent
from seep.channels.security import Security
from seep.protocol.bulk import flow_of
from seep.protocol.courier import Courier, LetterFrame
from seep.protocol.view import Incarnation
from seep.record.reports import BulkTransfer

#: The number of peers that are remembered to be lost for ever.
_GONE = 1000


class Process(Protocol):
    """The handlers of a process for messages of its peers; called on channel threads."""

    def on_letter(self, peer: str, version: int, body: Any) -> None:
        """The next letter of a peer, or state from it; letters of one peer come one at a time, and so does state."""
        ...

    def on_heartbeat(self, peer: str, body: Any) -> None:
        """A heartbeat of a peer, perhaps with data that may be lost."""
        ...

    def on_link_broken(self, peer: str, refused: bool) -> None: ...

    def on_link_restored(self, peer: str) -> None:
        """The link to a peer is back; stream messages of the peer may be lost."""
        ...

    def on_unsendable(self, peer: str, reason: Exception) -> None:
        """A message to a peer cannot be encoded."""
        ...


@dataclass(slots=True)
class _Peer:
    courier: Courier = field(default_factory=Courier)
    address: Address | None = None
    link: Link | None = None
    bulk: BulkLane | None = None
    arrivals: BulkArrivals | None = None
    sessions: int = 0  #: how often the peer has opened its stream of letters to us
    #: guards the courier and the order of what goes out
    outgoing: threading.Lock = field(default_factory=threading.Lock)
    #: keeps letters in order while they are handled
    incoming: threading.Lock = field(default_factory=threading.Lock)


class Peers:
    """A courier, a link and a bulk lane for each peer. Also the `LinkEvents` of all its links."""

    def __init__(
        self, me: str, security: Security, process: Process, *, credit: int = CREDIT, shelf: MappedFiles | None = None
    ) -> None:
        """At most `credit` bytes of state to a peer are unacknowledged; large buffers arrive on the `shelf`."""
        self.me = me
        self._security = security
        self._process = process
        self._credit, self._shelf = credit, shelf
        self._precedence = BulkPrecedence()
        self._peers: dict[str, _Peer] = {}
        #: peers that are lost for ever: messages to them and from them are dropped
        self._gone = Recent[str](_GONE)
        self._lock = threading.Lock()

    def know(self, name: str, address: Address) -> None:
        """Sets the address of a peer."""
        self._peer(name).address = address

    def link(self, name: str) -> Link | None:
        """Returns the link to a peer, opened on first use; None if the peer is lost."""
        with self._lock:
            if name in self._gone:
                return None
            peer = self._peers.setdefault(name, _Peer())
            if peer.link is None:
                assert peer.address is not None, f"nobody said where {name} listens"
                peer.link = Link(self.me, name, peer.address, self._security, self)
            return peer.link

    def post(self, name: str, version: int, body: Any) -> None:
        """Sends a letter, or a message that carries state; it arrives as long as both processes exist."""
        if (flow := flow_of(body)) is not None:
            if (lane := self._bulk_lane(name)) is not None:
                lane.post(flow, version, body)
            return
        link = self.link(name)
        if link is not None:
            peer = self._peer(name)
            with peer.outgoing:
                link.send(peer.courier.post(version, body))

    def heartbeat(self, name: str, body: Any = None) -> None:
        """Sends a heartbeat, which may be lost."""
        link = self.link(name)
        if link is not None:
            peer = self._peer(name)
            with peer.outgoing:
                frame = peer.courier.acknowledgement(0)
                assert frame is not None
                link.send(frame._replace(body=body))

    def acknowledge(self) -> None:
        """Acknowledges letters to waiting peers, so that they can drop them."""
        for name, peer in list(self._peers.items()):
            self._acknowledge(name, peer, 1)

    def transfers(self) -> tuple[BulkTransfer, ...]:
        """Returns the state that is being sent, by peer and kind."""
        found = Counter[tuple[str, str]]()
        for name, peer in list(self._peers.items()):
            if peer.bulk is not None:
                found.update({(name, kind): nbytes for kind, nbytes in peer.bulk.under_way().items()})
        return tuple(BulkTransfer(peer, kind, nbytes) for (peer, kind), nbytes in sorted(found.items()) if nbytes)

    def forget(self, name: str) -> None:
        """Forgets a lost peer: nothing more is sent to it or taken from it."""
        with self._lock:
            self._gone.add(name)
            peer = self._peers.pop(name, None)
        if peer is None:
            return
        if peer.link is not None:
            peer.link.close(grace=0.0)
        if peer.bulk is not None:
            peer.bulk.close()
        if peer.arrivals is not None:
            peer.arrivals.drop()

    def close(self) -> None:
        for name in list(self._peers):
            self.forget(name)

    # -- what the port hears ------------------------------------------------------------------------------------------

    def opened(self, name: str) -> None:
        """Records that a peer has opened its stream of letters; if not for the first time, messages may be lost."""
        peer = self._peer(name)
        peer.sessions += 1
        if peer.sessions > 1:
            self._process.on_link_restored(name)

    def arrived(self, name: str, frame: LetterFrame) -> None:
        """Takes a frame of a peer."""
        if name in self._gone:
            return
        peer = self._peer(name)
        if peer.link is not None:
            peer.link.heard()
        with peer.incoming:
            with peer.outgoing:
                is_next = peer.courier.receive(frame)
            if is_next:
                self._process.on_letter(name, frame.version, frame.body)
            elif frame.number == 0:
                self._process.on_heartbeat(name, frame.body)
        self._acknowledge(name, peer, Courier.QUIET)

    def bulk_opened(self, name: str) -> BulkArrivals:
        """Records that a peer has connected its bulk lane; returns the receiving end."""
        peer = self._peer(name)
        with self._lock:
            if peer.arrivals is None:
                peer.arrivals = BulkArrivals(self._deliver_from(name), self._shelf)
            return peer.arrivals

    def _deliver_from(self, name: str) -> Callable[[int, Any], None]:
        def deliver(version: int, body: Any) -> None:
            if name not in self._gone:
                self._process.on_letter(name, version, body)

        return deliver

    # -- what links tell ----------------------------------------------------------------------------------------------

    def on_broken(self, peer: str, refused: bool) -> None:
        known = self._peers.get(peer)
        if known is not None and known.bulk is not None:
            known.bulk.break_off()
        self._process.on_link_broken(peer, refused)

    def on_restored(self, peer: str) -> None:
        known = self._peers.get(peer)
        if known is None or known.link is None:
            return
        with known.outgoing:
            for frame in known.courier.again():
                known.link.send(frame)
        self._process.on_link_restored(peer)

    def on_stream_broken(self, sender: Incarnation, receiver: Incarnation) -> None:
        pass  # it reconnects, and its receiver then asks for missing messages

    def on_unsendable(self, peer: str, reason: Exception) -> None:
        self._process.on_unsendable(peer, reason)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _bulk_lane(self, name: str) -> BulkLane | None:
        """Returns the bulk lane to a peer, opened on first use; None if the peer is lost."""
        with self._lock:
            if name in self._gone:
                return None
            peer = self._peers.setdefault(name, _Peer())
            if peer.bulk is None:
                assert peer.address is not None, f"nobody said where {name} listens"
                way = Direction(self.me, name, peer.address, self._security)
                peer.bulk = BulkLane(way, self.on_unsendable, self._credit, self._precedence)
            return peer.bulk

    def _peer(self, name: str) -> _Peer:
        with self._lock:
            return _Peer() if name in self._gone else self._peers.setdefault(name, _Peer())

    def _acknowledge(self, name: str, peer: _Peer, at_least: int) -> None:
        if peer.address is None or (link := self.link(name)) is None:
            return
        with peer.outgoing:
            frame = peer.courier.acknowledgement(at_least)
            if frame is not None:
                link.send(frame)


class PeersReceiver:
    """The handlers of a process with `peers` for what its port receives of them: letters and state.

    The end of a stream needs no handler: its sender opens it again, or is lost, which the manager decides.
    """

    peers: Peers

    def admits(self, peer: str) -> bool:  # noqa: ARG002
        """Whether a process may send to this one; what others send is dropped."""
        return True

    def on_letters_open(self, peer: str, session: int) -> None:  # noqa: ARG002
        if self.admits(peer):
            self.peers.opened(peer)

    def on_frame(self, peer: str, frame: LetterFrame) -> None:
        if self.admits(peer):
            self.peers.arrived(peer, frame)

    def on_letters_closed(self, peer: str, session: int, reason: str) -> None: ...

    def on_bulk_open(self, peer: str) -> BulkArrivals:
        return self.peers.bulk_opened(peer) if self.admits(peer) else BulkArrivals(lambda *_: None)

    def on_stream_open(self, peer: str, sender: Incarnation, receiver: Incarnation, again: bool) -> None: ...

    def on_stream_closed(self, peer: str, sender: Incarnation, receiver: Incarnation, clean: bool) -> None: ...
