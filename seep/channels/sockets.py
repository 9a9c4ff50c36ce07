"""Sockets below the Flight library: what it does not let one do from above."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct

#: Where the open files of this process are listed; on Linux a link to /proc/self/fd.
_OPEN_FILES = "/dev/fd"
_PROBE_SECONDS = 2.0
#: Closing a socket resets the connection: a client whose window is shut would hear of an orderly end a minute late.
_RESET = struct.pack("ii", 1, 0)


def cut_connections(port: int) -> None:
    """Ends all connections of this process whose end here is `port`: those to a server of its own, or a client's one.

    Their streams then end as if the network had failed, whatever the other ends do. The library would wait for them:
    a server for its clients to end their calls, a client for the network to take what it has begun to write.
    """
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # closed in the meantime, or not a socket of this kind
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                _cut(int(name), port)


def _cut(file: int, port: int) -> None:
    """Works on the library's own descriptor: while a duplicate is open, the library's polling of the socket outlives
    its closing, and goes wrong."""
    connection = socket.socket(fileno=file)
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
            connection.getpeername()  # fails for the socket that listens, which is not for us to touch
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
    finally:
        connection.detach()


def is_refused(host: str, port: int) -> bool:
    """Whether the kernel at the other end says that nobody listens there; any other answer, or none, says nothing."""
    try:
        with socket.create_connection((host, port), _PROBE_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
