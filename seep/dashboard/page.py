"""The page: static files of this package, read once; nothing of it comes from another place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).with_name("static")


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    tag: str  #: changes with the content


def page_routes(folder: Path = FOLDER) -> list[Route]:
    """Returns the routes of the page: `/` for its index, and `/static/…` for all files."""
    files = dict(_files(folder))

    async def index(request: Request) -> Response:
        return _answer(request, files["index.html"])

    async def static(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return _answer(request, found)

    return [Route("/", index), Route("/static/{name:path}", static)]


def _files(folder: Path) -> Iterator[tuple[str, _File]]:
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        kind = "text/javascript" if path.suffix == ".js" else guess_type(path.name)[0] or "application/octet-stream"
        yield path.relative_to(folder).as_posix(), _File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, file: _File) -> Response:
    """Returns the file, unless the browser has it; it asks each time, as another version may run here next."""
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
