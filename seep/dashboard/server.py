"""The server of the dashboard: uvicorn on a thread of its own, behind the guard, with TLS if the run has it."""

from __future__ import annotations

import ipaddress
import logging
import ssl
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from primitives.errors import UserError, install_command
from seep.dashboard.access import Access
from seep.dashboard.guard import LOGGER, Log
from seep.dashboard.requests import Answering
from seep.dashboard.settings import DashboardSettings
from seep.dashboard.tokens import access_of
from seep.metrics.endpoint import listening
from seep.threads.worker import Worker

#: Seconds that open requests have when the server is closed, and then its thread.
_GRACE, _PATIENCE = 1, 5.0
#: The most bytes of a request's line and headers.
_LONGEST_HEAD = 32 * 1024
#: What only the extra `dashboard` brings.
_LIBRARIES = ("fastapi", "uvicorn")
#: The warning of a server that other machines reach without TLS.
_EXPOSED = (
    "the dashboard is reached from other machines without TLS: whoever can read the network between sees tokens and "
    "cookies, and can act as their owners; use run.tls, a proxy with TLS, or ssh -L with dashboard.host 127.0.0.1"
)


class PemFiles(NamedTuple):
    """The contents of two PEM files."""

    certificate: bytes  #: with its chain
    key: bytes


class DashboardServer:
    """Serves the page and the API of one run, from its opening until it is closed."""

    def __init__(
        self,
        settings: DashboardSettings,
        answering: Answering,
        access: Access,
        tls: PemFiles | None = None,
        log: Log | None = None,
    ) -> None:
        """Raises UserError without the extra `dashboard`, and EnvironmentFault if the port cannot be had."""
        check_dashboard(settings)
        import uvicorn

        from seep.dashboard.api import Api
        from seep.dashboard.connections import BoundedConnection, EndingServer

        log = log or logging.getLogger(LOGGER)
        self._settings, self._access = settings, access
        self._scheme = "http" if tls is None else "https"
        self._socket = listening("the dashboard", settings.host, settings.port or 0)
        self.port: int = self._socket.getsockname()[1]
        self._api = Api(answering, access, log)
        self.feed = self._api.feed
        config = uvicorn.Config(
            self._api.guarded((settings.host, *settings.hosts)),
            http=BoundedConnection,
            ws="none",
            lifespan="off",
            log_config=None,  # the guard logs what is worth it, without secrets
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        config.load()
        config.ssl = None if tls is None else _ssl_context(tls)
        self._server = EndingServer(config)
        #: what its users should know of its settings, if anything
        self.warning = _EXPOSED if tls is None and not self._is_local() else None
        if self.warning is not None:
            log.warning(self.warning)
        self._worker = Worker("seep dashboard", lambda reason: log.error("the dashboard has ended: %r", reason))
        self._worker.put(self._serve)

    @property
    def url(self) -> str:
        """The address of the page; if it listens on all addresses, with a name of the settings or of this machine."""
        host = self._settings.host
        if host in ("0.0.0.0", "::"):
            host = next(iter(self._settings.hosts), "127.0.0.1")
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def _is_local(self) -> bool:
        return ipaddress.ip_address(self._socket.getsockname()[0]).is_loopback

    def login_url(self) -> str:
        """Returns a link that logs a browser in as operator, once, within five minutes."""
        return f"{self.url}/login?code={self._access.login_code()}"

    def close(self) -> None:
        """Shows viewers a last picture; ends all connections, and the threads."""
        self.feed.close()
        self._server.should_exit = True
        self._worker.close(_PATIENCE)
        self._api.close()

    def _serve(self) -> None:
        with self._socket:
            self._server.run([self._socket])


def check_dashboard(settings: DashboardSettings) -> None:
    """Raises UserError if a dashboard is asked for, and a library is not installed or a token is not good."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if settings.port is not None and missing:
        raise UserError(
            f"a dashboard needs {' and '.join(missing)}, not installed here: {install_command('dashboard')}"
        )
    access_of(settings)


def _ssl_context(tls: PemFiles) -> ssl.SSLContext:
    """Returns the context of a server; Python reads certificates of files only, which are removed at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory(prefix="seep-tls-") as folder:
        files = [Path(folder, name) for name in PemFiles._fields]
        for path, content in zip(files, tls, strict=True):
            path.touch(0o600)
            path.write_bytes(content)
        context.load_cert_chain(files[0], files[1])
    return context
