"""A server on loopback that answers what a test has told it to, in order, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


@dataclass(slots=True)
class Script:
    """Status and text of the answers to come; the last one is given again and again."""

    answers: list[tuple[int, str]]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def next_answer(self) -> tuple[int, str]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(*answers: tuple[int, str]) -> Iterator[Script]:
    """The script of a server that is there as long as the context."""
    script = Script(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            script.asked.append(Asked(self.command, self.path, dict(self.headers), body))
            status, text = script.next_answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(code: str, message: str = "because") -> tuple[int, str]:
    """An error as EC2 answers it."""
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return 400, f"<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>"
