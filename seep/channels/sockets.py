"""Operations on the sockets of the Flight library that it does not offer itself."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct

#: The directory of this process's open files; on Linux a link to /proc/self/fd.
_OPEN_FILES = "/dev/fd"
_PROBE_SECONDS = 2.0
#: Closing a socket resets the connection: a client with a full window would see an orderly end a minute late.
_RESET = struct.pack("ii", 1, 0)


def cut_connections(port: int) -> None:
    """Ends all connections of this process with local port `port`: those of its server, or the one of a client.

    Their streams then end as if the network had failed. The library itself would wait: a server for its clients to end
    their calls, a client until its data is sent.
    """
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # closed in the meantime, or not a socket of this kind
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                _cut(int(name), port)


def _cut(file: int, port: int) -> None:
    """Uses the library's own descriptor: while a duplicate is open, the library continues to poll the closed socket,
    and fails."""
    connection = socket.socket(fileno=file)
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
            connection.getpeername()  # fails for the listening socket, which must not be touched
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
    finally:
        connection.detach()


def is_refused(host: str, port: int) -> bool:
    """Whether the other host refuses the connection, so that no process listens there; false if that is unknown."""
    try:
        with socket.create_connection((host, port), _PROBE_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
