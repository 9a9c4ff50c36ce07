"""Who is let in: those with the token, over TLS where that is asked for; and what garbage does, which is nothing."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from primitives.errors import EnvironmentFault
from seep.channels.dial import client_of
from seep.channels.port import CALL, Port
from seep.channels.security import Security
from seep.channels.wire import encode
from seep.protocol.courier import LetterFrame
from tests.runtime.peers_kit import Recorder, link, port

DESCRIPTOR = flight.FlightDescriptor.for_command(encode(["letters", "me", 1]).to_pybytes())


def put(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    writer, _ = client.do_put(DESCRIPTOR, pa.schema({"n": pa.int64()}), options)
    writer.close()


def exchange(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    _, reader = client.do_exchange(DESCRIPTOR, options)
    reader.read_chunk()


#: Every verb that Flight has.
VERBS: dict[str, Callable[[flight.FlightClient, flight.FlightCallOptions], Any]] = {
    "do_get": lambda client, options: client.do_get(flight.Ticket(b"x"), options).read_all(),
    "do_put": put,
    "do_exchange": exchange,
    "do_action": lambda client, options: list(
        client.do_action(flight.Action(CALL, encode(["me", "echo", 1])), options)
    ),
    "list_actions": lambda client, options: list(client.list_actions(options)),
    "list_flights": lambda client, options: list(client.list_flights(options=options)),
    "get_flight_info": lambda client, options: client.get_flight_info(DESCRIPTOR, options),
    "get_schema": lambda client, options: client.get_schema(DESCRIPTOR, options),
    "handshake": lambda client, options: client.authenticate_basic_token("user", "password", options),
}
TOKENS: dict[str, list[tuple[bytes, bytes]]] = {
    "no token": [],
    "a wrong token": [Security.open().header],
    "an empty token": [(b"authorization", b"")],
    "a token that is not text": [(b"authorization", b"Bearer \xff\xfe")],
    "another scheme": [(b"authorization", b"Basic x")],
    "a long token": [(b"authorization", b"Bearer " + b"x" * 4000)],
}


@pytest.fixture(params=["plain", "tls"])
def security(request: pytest.FixtureRequest) -> Security:
    return Security.with_tls() if request.param == "tls" else Security.open()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def opened(security: Security, recorder: Recorder) -> Iterator[Port]:
    with port(recorder, security) as opened:
        yield opened


def options_with(*headers: tuple[bytes, bytes]) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=5, headers=list(headers))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_refused_without_the_right_token(
    verb: str, security: Security, opened: Port, recorder: Recorder
) -> None:
    client = client_of(opened.address, security)
    for name, headers in TOKENS.items():
        with pytest.raises((flight.FlightError, OSError)) as refusal:
            VERBS[verb](client, options_with(*headers))
        assert "token of this run" in str(refusal.value) or name == "a token that is not text"
    assert recorder.heard == []


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"do_exchange", "do_action"}))
def test_with_the_token_the_other_verbs_do_nothing(
    verb: str, security: Security, opened: Port, recorder: Recorder
) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowNotImplementedError)):
        VERBS[verb](client_of(opened.address, security), options_with(security.header))
    assert recorder.heard == []


def test_a_link_with_the_token_is_let_in(security: Security, opened: Port, recorder: Recorder) -> None:
    with link(recorder, opened.address, security) as to_port:
        assert to_port.call("echo", {"n": 1}) == {"n": 1}
        to_port.send(LetterFrame(1, 0, 0, "hello"))
        assert recorder.wait("frame") == [("me", LetterFrame(1, 0, 0, "hello"))]


def test_a_link_with_another_token_is_told_so(security: Security, opened: Port, recorder: Recorder) -> None:
    other = Security(Security.open().token, security.certificate, security.key, security.name)
    with link(recorder, opened.address, other) as to_port, pytest.raises(EnvironmentFault, match="token"):
        to_port.call("echo", 1)


def test_a_plain_client_gets_nowhere_with_tls(recorder: Recorder) -> None:
    encrypted = Security.with_tls()
    with port(recorder, encrypted) as opened, link(recorder, opened.address, Security(encrypted.token)) as to_port:
        with pytest.raises(EnvironmentFault):
            to_port.call("echo", 1, timeout=5)
        to_port.send(LetterFrame(1, 0, 0, None))
        assert recorder.wait("broken") == [("peer", False)]
    assert recorder.of("call") == recorder.of("frame") == []


def test_a_client_without_the_certificate_of_the_run_gets_nowhere(recorder: Recorder) -> None:
    """It could not even send a first byte to be looked at."""
    encrypted = Security.with_tls()
    with port(recorder, encrypted) as opened:
        context = ssl.create_default_context(cadata=(encrypted.certificate or b"").decode())
        context.set_alpn_protocols(["h2"])
        answer = b""
        with (
            suppress(ssl.SSLError, ConnectionError),
            socket.create_connection(opened.address, 5) as plain,
            context.wrap_socket(plain, server_hostname=encrypted.name) as wrapped,
        ):
            wrapped.sendall(PREFACE)
            answer = wrapped.recv(1)
        assert answer == b""


def test_a_client_does_not_trust_the_certificate_of_another_run(recorder: Recorder) -> None:
    with (
        port(recorder, Security.with_tls()) as opened,
        link(recorder, opened.address, Security.with_tls()) as other,
        pytest.raises(EnvironmentFault),
    ):
        other.call("echo", 1, timeout=5)


def test_a_certificate_from_files_serves_the_host_that_it_names(tmp_path: Path, recorder: Recorder) -> None:
    made = Security.with_tls("127.0.0.1", "localhost")
    certificate, key = tmp_path / "run.crt", tmp_path / "run.key"
    certificate.write_bytes(made.certificate or b"")
    key.write_bytes(made.key or b"")
    security = Security.with_files(certificate, key)
    assert security.name is None
    with port(recorder, security) as opened, link(recorder, opened.address, security) as to_port:
        assert to_port.call("echo", 1) == 1


@pytest.mark.parametrize("wrong", ["missing", "empty", "swapped", "not its key"])
def test_files_that_do_not_load_are_named(tmp_path: Path, wrong: str) -> None:
    made, other = Security.with_tls(), Security.with_tls()
    certificate, key = tmp_path / "run.crt", tmp_path / "run.key"
    content = {
        "empty": (b"", b""),
        "swapped": (made.key, made.certificate),
        "not its key": (made.certificate, other.key),
    }
    if wrong in content:
        certificate.write_bytes(content[wrong][0] or b"")
        key.write_bytes(content[wrong][1] or b"")
    with pytest.raises(EnvironmentFault, match=r"run\.crt"):
        Security.with_files(certificate, key)


def test_secrets_are_not_shown() -> None:
    security = Security.with_tls()
    assert security.token not in repr(security)
    assert "PRIVATE" not in repr(security)
    assert Security.open().token != Security.open().token


def test_a_port_cannot_be_opened_on_an_interface_that_is_not_there(recorder: Recorder) -> None:
    with pytest.raises(EnvironmentFault, match=r"192\.0\.2\.1"):
        Port("192.0.2.1", Security.open(), recorder)


def test_a_port_listens_on_its_interface_only(opened: Port) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", opened.address.port), 5)


# -- garbage -----------------------------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GARBAGE = {
    "random bytes": os.urandom(200_000),
    "nothing": b"",
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000,
    "the beginning of HTTP/2 and then random bytes": PREFACE + os.urandom(200_000),
    "a frame that announces 16 MB": PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"x" * 1000,
    "half a preface": PREFACE[:10],
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_on_the_port_harms_nobody(garbage: str, security: Security, opened: Port, recorder: Recorder) -> None:
    with link(recorder, opened.address, security) as to_port:
        to_port.send(LetterFrame(1, 0, 0, None))
        recorder.wait("frame")
        for _ in range(5):
            with socket.create_connection(opened.address, 5) as raw:
                try:
                    raw.sendall(GARBAGE[garbage])
                except (BrokenPipeError, ConnectionResetError):
                    continue
        to_port.send(LetterFrame(2, 0, 0, None))
        recorder.wait("frame", 2)
        assert to_port.call("echo", 1) == 1
    assert recorder.of("broken") == []


def _exchange(client: flight.FlightClient, security: Security, command: bytes) -> tuple[Any, Any]:
    descriptor = flight.FlightDescriptor.for_command(command)
    exchange: tuple[Any, Any] = client.do_exchange(descriptor, options_with(security.header))
    return exchange


@pytest.mark.parametrize(
    "command",
    [
        b"",
        os.urandom(50),
        *(encode(o).to_pybytes() for o in (None, ["letters", 1, 1], ["messages", "me", (), (), 0, 0])),
    ],
    ids=["nothing", "random", "null", "no peer", "no ends"],
)
def test_a_stream_that_begins_with_nonsense_ends_and_is_told(
    command: bytes, security: Security, opened: Port, recorder: Recorder
) -> None:
    writer, reader = _exchange(client_of(opened.address, security), security, command)
    with pytest.raises(flight.FlightError):
        reader.read_chunk()
    assert len(recorder.wait("fault")) == 1
    with pytest.raises(flight.FlightError):
        writer.close()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x09" + os.urandom(100),
        b"\xff" + os.urandom(100),
        b"\x01" + bytes(7) + os.urandom(100),
        b"\x01" + bytes(7) + encode("no frame").to_pybytes(),
    ],
    ids=["nothing", "random", "random with a sign", "labelled random", "no frame"],
)
def test_nonsense_in_a_stream_ends_that_stream_and_is_told(
    metadata: bytes, security: Security, opened: Port, recorder: Recorder
) -> None:
    with link(recorder, opened.address, security) as to_port:
        to_port.send(LetterFrame(1, 0, 0, None))
        recorder.wait("frame")
        writer, reader = _exchange(
            client_of(opened.address, security), security, encode(["letters", "x", 1]).to_pybytes()
        )
        reader.read_chunk()
        writer.write_metadata(metadata or b"\x07")
        with pytest.raises(flight.FlightError):
            reader.read_chunk()
        assert [peer for peer, _ in recorder.wait("fault")] == ["x"]
        to_port.send(LetterFrame(2, 0, 0, None))
        recorder.wait("frame", 2)
        with pytest.raises(flight.FlightError):
            writer.close()


@pytest.mark.parametrize(
    "body",
    [b"", os.urandom(100), encode("no call").to_pybytes(), encode([1, 2, 3]).to_pybytes()],
    ids=["nothing", "random", "text", "numbers"],
)
def test_nonsense_in_a_call_is_answered_with_an_error_and_told(
    body: bytes, security: Security, opened: Port, recorder: Recorder
) -> None:
    client = client_of(opened.address, security)
    for kind in (CALL, "another"):
        with pytest.raises(flight.FlightError):
            list(client.do_action(flight.Action(kind, body), options_with(security.header)))
    assert len(recorder.wait("fault", 2)) == 2


def test_a_message_over_the_limit_ends_its_stream(recorder: Recorder) -> None:
    security = Security.open()
    with port(recorder, security, limit=1 << 20) as opened, link(recorder, opened.address, security) as to_port:
        to_port.send(LetterFrame(1, 0, 0, {"rows": pa.record_batch({"n": pa.nulls(1 << 18, pa.int64())})}))
        assert "longer than" in recorder.wait("fault")[0][1]
        recorder.wait("restored")
        to_port.send(LetterFrame(2, 0, 0, None))
        recorder.wait("frame")


def test_a_client_that_is_cut_off_in_mid_stream_is_noticed(
    security: Security, opened: Port, recorder: Recorder
) -> None:
    writer, reader = _exchange(client_of(opened.address, security), security, encode(["letters", "x", 1]).to_pybytes())
    reader.read_chunk()
    reader.cancel()
    assert recorder.wait("letters closed") == [("x", 1, "the connection is lost")]
    assert recorder.of("fault") == []
    with pytest.raises(flight.FlightError):
        writer.close()
