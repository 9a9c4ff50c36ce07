"""The client of a dashboard: requests over HTTP, and an error in words for all that can be wrong there."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.channels.security import Security
from seep.running import dashboard_client as module
from seep.running.dashboard_client import DashboardAddress, DashboardClient
from tests.cli.pages import Page, Pages, answer, served

TOKEN = "s3cret-token-of-the-run"


@pytest.fixture
def pages() -> Iterator[Pages]:
    with served() as found:
        yield found


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    made = Security.with_tls("127.0.0.1")
    assert made.certificate is not None
    assert made.key is not None
    files = tmp_path / "run.pem", tmp_path / "run.key"
    for file, content in zip(files, (made.certificate, made.key), strict=True):
        file.write_bytes(content)
    return files


def client(url: str, token: str | None = TOKEN, ca: Path | None = None) -> DashboardClient:
    return DashboardClient(DashboardAddress(url, token, ca))


def refusal(kind: type[SeepError], asking: DashboardClient, do: str = "run") -> str:
    """What the client says, which never has the token in it."""
    with pytest.raises(kind) as caught:
        asking.tell(do)
    said = f"{caught.value}"
    assert TOKEN not in said + repr(caught.value) + repr(asking)
    return said


# -- requests ----------------------------------------------------------------------------------------------------------


def test_reading_requests_are_paths_with_parameters_and_the_token_in_a_header(pages: Pages) -> None:
    pages.given["/api/v1/state"] = answer({"rows": []})
    told = client(pages.url).tell("state", operator="a & b", key=["x/y", "z"], container=None, limit=3)
    assert told == {"rows": []}
    asked = pages.asked[-1]
    assert (asked.method, asked.path) == ("GET", "/api/v1/state?operator=a+%26+b&key=x%2Fy&key=z&limit=3")
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"


def test_acting_requests_are_posts_with_a_json_object_of_the_given_fields(pages: Pages) -> None:
    pages.given["/api/v1/scale"] = answer({})
    assert client(pages.url).tell("scale", operator="counter", to=3) == {}
    asked = pages.asked[-1]
    assert (asked.method, asked.path) == ("POST", "/api/v1/scale")
    assert asked.headers["Content-Type"] == "application/json"
    assert json.loads(asked.body) == {"operator": "counter", "to": 3}


def test_the_run_is_asked_for_its_names_once(pages: Pages) -> None:
    run = client(pages.url)
    assert (run.id, run.query, run.id) == ("ab12cd34", "orders", "ab12cd34")
    assert len(pages.asked) == 1


def test_without_a_token_none_is_sent(pages: Pages) -> None:
    client(pages.url, token=None).tell("run")
    assert "Authorization" not in pages.asked[-1].headers


def test_over_tls_the_certificate_of_the_run_is_trusted_if_it_is_given(certificate: tuple[Path, Path]) -> None:
    with served(certificate) as pages:
        assert client(pages.url, ca=certificate[0]).query == "orders"


# -- addresses and tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8080", "is no address of a dashboard; write such as https://driver.example:8443"),
        ("ftp://127.0.0.1:8080", "is no address of a dashboard"),
        ("http://", "is no address of a dashboard"),
        ("http://127.0.0.1:http", "is no address: "),
        ("http://127.0.0.1:0", "is no address of a dashboard"),
        ("http://[::1", "is no address: "),
        (f"http://127.0.0.1:8080/login?code={TOKEN}", "must be the address alone, http://127.0.0.1:8080, without"),
        ("http://127.0.0.1:8080/api/v1", "must be the address alone"),
        (f"http://me:{TOKEN}@127.0.0.1:8080", "must be the address alone, http://127.0.0.1:8080, without"),
    ],
)
def test_what_is_no_address_of_a_dashboard_is_refused(url: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        client(url)
    assert words in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("url", ["http://driver.example:8080", "http://10.0.0.7", "http://localhost.example.com"])
def test_a_token_is_not_sent_unencrypted_to_another_machine_unless_told(url: str) -> None:
    with pytest.raises(UserError, match=r"the token is not sent to .* over HTTP, .* or --insecure-http if") as caught:
        client(url)
    assert TOKEN not in str(caught.value)
    DashboardAddress(url, TOKEN, insecure_http=True).check()
    DashboardAddress(url, None).check()
    DashboardAddress(url.replace("http:", "https:"), TOKEN).check()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://127.9.9.9", "http://[::1]:8080", "http://localhost/"])
def test_a_token_may_go_unencrypted_to_this_machine(url: str) -> None:
    DashboardAddress(url, TOKEN).check()


def test_certificates_are_for_tls_only(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--ca has the certificates of an address https://"):
        client("http://127.0.0.1:8080", ca=tmp_path / "ca.pem")


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_without_certificates_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"--ca .*ca.pem has no certificates that can be read"):
        client("https://127.0.0.1:8080", ca=file)


# -- the other side ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, UserError, ": to: must be at least 1"),
        (401, UserError, " does not let this client in: to: must be at least 1; is the token right?"),
        (403, UserError, ": to: must be at least 1"),
        (409, UserError, ": to: must be at least 1"),
        (503, EnvironmentFault, ": to: must be at least 1"),
        (504, EnvironmentFault, ": to: must be at least 1"),
    ],
)
def test_a_refusal_is_the_sentence_of_the_run_as_one_of_two_kinds(
    pages: Pages, status: int, kind: type[SeepError], words: str
) -> None:
    pages.given["/api/v1/run"] = answer({"error": "to: must be at least 1"}, status)
    assert refusal(kind, client(pages.url)) == f"{pages.address}{words}"


def test_who_has_given_no_token_is_told_how(pages: Pages) -> None:
    pages.given["/api/v1/run"] = answer({"error": "a token is needed"}, 401)
    assert "give a token, with --token-file or SEEP_TOKEN" in refusal(UserError, client(pages.url, token=None))


def test_control_characters_of_a_refusal_do_not_reach_the_terminal(pages: Pages) -> None:
    pages.given["/api/v1/run"] = answer({"error": "\x1b[2J" + "x" * 10_000}, 400)
    said = refusal(UserError, client(pages.url))
    assert "\\x1b[2J" in said
    assert "\x1b" not in said
    assert len(said) < 3000


@pytest.mark.parametrize(
    "page",
    [
        Page(b"<html>welcome</html>"),
        Page(b"<html>not found</html>", 404),
        answer(["a", "list"]),
        answer({"detail": "Not Found"}, 404),
        Page(b"[" * 100_000),
        Page(b"\xff\xfe"),
        Page(b""),
    ],
)
def test_a_page_that_is_no_dashboard_is_said_to_be_none(pages: Pages, page: Page) -> None:
    pages.given["/api/v1/run"] = page
    said = refusal(UserError, client(pages.url))
    assert said.startswith(f"at {pages.address} there is no dashboard of seep: ")


def test_an_answer_that_names_no_run_is_of_no_dashboard(pages: Pages) -> None:
    pages.given["/api/v1/run"] = answer({"id": 5})
    with pytest.raises(UserError, match="there is no dashboard of seep: its answer names no run"):
        client(pages.url).id  # noqa: B018


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_does_not_follow_a_redirection(pages: Pages, status: int) -> None:
    with served() as elsewhere:
        pages.given["/api/v1/run"] = Page(b"", status, {"Location": f"{elsewhere.url}/api/v1/run"})
        said = refusal(UserError, client(pages.url))
        assert f"refers to {elsewhere.url}/api/v1/run; the token is not sent there" in said
        assert elsewhere.asked == []


def test_a_certificate_that_nobody_trusts_is_refused_before_the_token_is_sent(
    certificate: tuple[Path, Path],
) -> None:
    with served(certificate) as pages:
        said = refusal(UserError, client(pages.url))
        assert "is not trusted: self-signed certificate" in said
        assert "--ca FILE" in said
        assert pages.asked == []


def test_a_certificate_of_another_host_is_refused(certificate: tuple[Path, Path]) -> None:
    with served(certificate) as pages:
        url = pages.url.replace("127.0.0.1", "127.0.0.2")
        with socket.create_server(("127.0.0.2", 0)) as front:
            port = front.getsockname()[1]
            passed = threading.Thread(target=_pass_on, args=(front, pages.address))
            passed.start()
            said = refusal(UserError, client(f"{url.rpartition(':')[0]}:{port}", ca=certificate[0]))
            passed.join()
        assert "certificate is not valid for '127.0.0.2'" in said
        assert pages.asked == []


def _pass_on(front: socket.socket, address: str) -> None:
    """Passes one connection on to another address, until one side ends it."""
    host, _, port = address.partition(":")
    here, _ = front.accept()
    with here, socket.create_connection((host, int(port))) as there:
        back = threading.Thread(target=_copy, args=(there, here))
        back.start()
        _copy(here, there)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def test_who_speaks_tls_to_a_server_without_it_is_told(pages: Pages) -> None:
    said = refusal(UserError, client(pages.url.replace("http:", "https:")))
    assert "do not agree on TLS" in said
    assert "write http://" in said


def test_a_server_that_is_not_there_is_a_fault_of_the_environment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = client(f"http://127.0.0.1:{port}")
    assert refusal(EnvironmentFault, gone) == f"the dashboard at 127.0.0.1:{port} cannot be reached: Connection refused"
    assert gone.has_ended()


def test_a_server_that_listens_has_not_ended(pages: Pages) -> None:
    assert not client(pages.url).has_ended()


@contextmanager
def speaking(*pieces: bytes) -> Iterator[str]:
    """The address of a server that says this on its first connection; the last piece again and again, slowly."""
    over = threading.Event()

    def speak() -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces[:-1]:
                    connection.sendall(piece)
                while pieces[-1] and not over.wait(0.02):
                    connection.sendall(pieces[-1])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=speak)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def test_a_server_that_does_not_speak_http_is_no_dashboard() -> None:
    with speaking(b"220 mail.example ESMTP\r\n", b"") as url:
        assert "there is no dashboard of seep: it does not answer in HTTP" in refusal(UserError, client(url))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "pieces",
    [(b"H",), (HEAD + b"X-Slow: ", b"x"), (HEAD + b"Content-Length: 100000\r\n\r\n{", b" "), (HEAD + b"\r\n{", b" ")],
    ids=["first line", "headers", "body", "body without length"],
)
def test_an_answer_that_drips_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...]) -> None:
    monkeypatch.setattr(module, "time_limit", lambda *_: 0.3)
    with speaking(*pieces) as url:
        assert refusal(EnvironmentFault, client(url)).endswith("did not answer within 0.3 s")


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST", 1 << 20)
    with speaking(HEAD + b"\r\n", b" " * 65536) as url:
        assert refusal(EnvironmentFault, client(url)).endswith("answers with more than 1,048,576 bytes; ask for less")


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    with speaking(HEAD + b"Content-Length: 100\r\n\r\n{}", b"") as url:
        assert refusal(EnvironmentFault, client(url)).endswith("broke off; ask again")
