"""Connections of the dashboard's server: few, and none that a slow or idle client holds for longer than a deadline.

uvicorn limits how long a connection may be idle between two requests, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: The most connections at a time; a further one is closed at once.
CONNECTIONS = 128
#: Seconds until the head of a request must have arrived, from the opening of its connection or its first byte.
HEAD_SECONDS = 10.0
#: Seconds within which a client must take in what is sent to it.
TAKE_SECONDS = 30.0


class BoundedConnection(H11Protocol):
    """uvicorn's connection, which is ended if its client keeps the server waiting."""

    _due: asyncio.TimerHandle | None = None  #: until when a request has to begin; None while one is being answered
    _stuck: asyncio.TimerHandle | None = None  #: until when the client has to take what is sent

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self._expect_request()

    def data_received(self, data: bytes) -> None:
        before: Any = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._due = _without(self._due)
        elif before is not None and before.response_complete:
            self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self._stuck or self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = _without(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._due, self._stuck = _without(self._due), _without(self._stuck)

    def _expect_request(self) -> None:
        self._due = self._due or self.loop.call_later(HEAD_SECONDS, self.transport.abort)


class EndingServer(uvicorn.Server):
    """uvicorn's server, which leaves no connection open: those that are not over in time are ended."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which the sockets are closed


def _without(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancels a timer; returns None, which stands for none."""
    if timer is not None:
        timer.cancel()
    return None
