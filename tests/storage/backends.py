"""Every back end that can run here, each with empty places to work in."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.s3 import models
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pydantic import ByteSize

from seep.storage.arrow_fs import ArrowStore
from seep.storage.cached import CachedStore
from seep.storage.local import LocalStore
from seep.storage.memory import MemoryStore
from seep.storage.s3 import S3Store
from seep.storage.settings import S3Settings
from seep.storage.store import BlobStore

#: Makes a store with nothing in it.
Backend = Callable[[], BlobStore]

KINDS = ("memory", "local", "s3", "arrow", "arrow-subtree", "cached-memory", "cached-local")
BUCKET = "checkpoints"
#: Smaller than a real S3 has it, so that few bytes are enough for many parts.
PART = 1000


@contextmanager
def backend(kind: str, root: Path) -> Iterator[Backend]:
    """One of `KINDS`."""
    numbers = itertools.count()
    with ExitStack() as stack:
        match kind:
            case "memory":
                yield MemoryStore
            case "local":
                yield lambda: LocalStore(root / str(next(numbers)))
            case "s3":
                url = stack.enter_context(s3_server())
                with pytest.MonkeyPatch.context() as patch:
                    sign_in(patch)
                    store = S3Store(BUCKET, "some/where", s3_settings(url))
                yield lambda: _emptied(store, url)  # as it takes long to make another one
            case "arrow":
                yield lambda: _arrow(fs.LocalFileSystem(), root / str(next(numbers)))
            case "arrow-subtree":
                yield lambda: _arrow(fs.SubTreeFileSystem(str(root), fs.LocalFileSystem()), Path(str(next(numbers))))
            case "cached-memory":
                yield lambda: CachedStore(MemoryStore(), 2000)
            case "cached-local":
                yield lambda: CachedStore(LocalStore(root / str(next(numbers))), 2000)


@contextmanager
def s3_server() -> Iterator[str]:
    """A real server for S3 on loopback. What it keeps it shares with other servers of this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "S3_UPLOAD_PART_MIN_SIZE", 1)
        patch.setattr(S3Response, "put_object", _one_at_a_time(S3Response.put_object))
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "7")  # so that few keys are enough for many pages
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


def sign_in(patch: pytest.MonkeyPatch) -> None:
    """As somebody whom that server lets in; nothing of this machine's own settings reaches the library."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    patch.setenv("AWS_CONFIG_FILE", "/nowhere/config")
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials")


def _one_at_a_time(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As S3 decides between two writers, where this server first looks and then writes."""
    lock = threading.Lock()

    def locked(request: Any) -> Any:
        with lock:
            return answer(request)

    return locked


def s3_settings(url: str, **more: Any) -> S3Settings:
    """For that server; the size of parts is one that the model would not take."""
    settings = S3Settings.model_validate({"region": "us-east-1", "endpoint_url": url, "uploads": 2, **more})
    return settings.model_copy(update={"part_size": ByteSize(PART)})


def _emptied(store: BlobStore, url: str) -> BlobStore:
    make_bucket(url)
    store.delete([*store.list()])
    return store


def make_bucket(url: str, name: str = BUCKET) -> None:
    """Makes sure that it is there."""
    client(url).create_bucket(Bucket=name)


@cache
def client(url: str) -> Any:
    """S3 without anything of ours in between."""
    who = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client("s3", region_name="us-east-1", endpoint_url=url, **who)


def _arrow(files: fs.FileSystem, root: Path) -> ArrowStore:
    return ArrowStore(files, str(root), f"arrow://{root}")
