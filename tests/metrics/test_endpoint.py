"""The endpoint: over real connections on 127.0.0.1, with scrapers that are slow, rude or too many."""

from __future__ import annotations

import resource
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection

import pytest

import seep.metrics.endpoint as module
from primitives.errors import EnvironmentFault, UserError
from seep.channels.sockets import is_refused
from seep.metrics.endpoint import CONNECTIONS, PATH, MetricsEndpoint, check_metrics
from seep.metrics.settings import MetricsSettings, metrics_settings
from tests.metrics.test_definitions import busy
from tests.waiting import eventually


def opened() -> MetricsEndpoint:
    return MetricsEndpoint(MetricsSettings(port=0), "r1", "words")


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    """An endpoint that has to leave neither a thread nor an open port."""
    threads = set(threading.enumerate())
    endpoint = opened()
    try:
        yield endpoint
    finally:
        endpoint.close()
        assert set(threading.enumerate()) <= threads
        assert is_refused(*endpoint.address)


def asked(endpoint: MetricsEndpoint, method: str = "GET", target: str = PATH) -> tuple[int, bytes]:
    connection = HTTPConnection(*endpoint.address, timeout=20)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def connected(endpoint: MetricsEndpoint) -> socket.socket:
    return socket.create_connection(endpoint.address, timeout=20)


def test_what_was_shown_last_is_served(endpoint: MetricsEndpoint) -> None:
    assert asked(endpoint) == (200, b"")
    script = busy()
    endpoint.show(script.facts())
    status, body = asked(endpoint)
    assert status == 200
    assert b'seep_operator_rows_in_total{operator="counter"} 90.0\n' in body
    script.work(next(iter(script.placement)), 5)
    endpoint.show(script.facts())
    assert eventually(lambda: b'seep_operator_rows_in_total{operator="counter"} 95.0\n' in asked(endpoint)[1])


def test_its_address_is_on_the_loopback_interface_unless_told(endpoint: MetricsEndpoint) -> None:
    host, port = endpoint.address
    assert (host, endpoint.url) == ("127.0.0.1", f"http://127.0.0.1:{port}/metrics")


def test_only_the_one_page_is_there_and_only_to_read(endpoint: MetricsEndpoint) -> None:
    assert asked(endpoint, target="/")[0] == asked(endpoint, target="/metrics/../etc/passwd")[0] == 404
    assert asked(endpoint, "POST")[0] == asked(endpoint, "DELETE")[0] == 405
    endpoint.show(busy().facts())
    assert asked(endpoint, "HEAD") == (200, b"")
    assert asked(endpoint, target="/metrics?x=y")[0] == 200


@pytest.mark.parametrize(
    "rude",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET " + b"x" * 100_000,
        b"GET /metrics HTTP/1.1\r\n",
    ],
)
def test_a_request_that_is_none_is_not_answered_and_the_next_one_is(endpoint: MetricsEndpoint, rude: bytes) -> None:
    with connected(endpoint) as connection:
        with suppress(OSError):  # it need not be read to its end
            connection.sendall(rude)
            connection.shutdown(socket.SHUT_WR)
        assert _rest(connection) == b""
    assert asked(endpoint)[0] == 200


def test_scrapers_that_hold_connections_are_turned_out_and_others_get_their_turn(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 3.0)
    with ExitStack() as held:
        slow = [held.enter_context(connected(endpoint)) for _ in range(CONNECTIONS)]
        for each in slow:
            each.sendall(b"GET /met")
        assert eventually(lambda: endpoint.connections == CONNECTIONS)
        assert not _answers(endpoint), "it is one too many"
        assert eventually(lambda: _answers(endpoint))
        assert {_rest(each) for each in slow} == {b""}


def _answers(endpoint: MetricsEndpoint) -> bool:
    try:
        return asked(endpoint)[0] == 200
    except OSError:
        return False


def _rest(connection: socket.socket) -> bytes:
    """All that comes until the other side ends the connection, in one way or another."""
    found = b""
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            found += part
    return found


def test_a_scraper_that_does_not_read_its_answer_is_turned_out(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.show(busy(instances=1_000).facts())
    whole = len(asked(endpoint)[1])
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(endpoint.address)
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert eventually(lambda: endpoint.connections == 1)
        assert eventually(lambda: endpoint.connections == 0)
        assert 0 < len(_rest(connection)) < whole
    assert asked(endpoint)[0] == 200


def test_what_goes_wrong_in_reading_is_told_to_the_scraper(endpoint: MetricsEndpoint) -> None:
    endpoint.show(busy().facts(vms={"warm": "two"}))
    status, body = asked(endpoint)
    assert status == 500
    assert body.startswith(b"the metrics cannot be read: ValueError")


def test_showing_waits_for_no_scraper(endpoint: MetricsEndpoint) -> None:
    """It replaces one value; whoever shows facts takes no lock and sends nothing."""
    facts = busy().facts()
    with connected(endpoint) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        for _ in range(1000):
            endpoint.show(facts)
        connection.sendall(b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_it_goes_on_after_a_time_in_which_no_file_could_be_opened(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.05)
    paused = threading.Event()
    listen = endpoint._listen
    monkeypatch.setattr(endpoint, "_listen", lambda: (paused.set(), listen()))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as connection:
        connection.settimeout(20)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (connection.fileno() + 1, before[1]))
            connection.connect(endpoint.address)
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert paused.wait(60)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert _rest(connection).startswith(b"HTTP/1.1 200")


def test_it_ends_although_a_connection_is_open() -> None:
    threads = set(threading.enumerate())
    endpoint = opened()
    with connected(endpoint) as connection:
        connection.sendall(b"GET /met")
        endpoint.close()
        endpoint.close()
        assert set(threading.enumerate()) <= threads
        assert _rest(connection) == b""


def test_a_port_that_is_taken_is_an_error_that_names_it(endpoint: MetricsEndpoint) -> None:
    port = endpoint.address[1]
    with pytest.raises(EnvironmentFault, match=rf"metrics cannot be served at 127\.0\.0\.1, port {port}: .*0 for any"):
        MetricsEndpoint(MetricsSettings(port=port), "r2", "words")
    with pytest.raises(EnvironmentFault, match=r"at 192\.0\.2\.1, port 0"):
        MetricsEndpoint(MetricsSettings(port=0, host="192.0.2.1"), "r2", "words")


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    check_metrics(MetricsSettings())
    with pytest.raises(UserError, match=r"pip install 'seep-streaming\[metrics\]'"):
        check_metrics(MetricsSettings(port=0))


def test_a_port_stands_for_settings() -> None:
    assert metrics_settings(None).port is None
    assert metrics_settings(MetricsSettings(port=3)).port == 3
    with pytest.raises(UserError, match=r"option 'metrics': port is 70000: .*65535"):
        metrics_settings(70_000)
