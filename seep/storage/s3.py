"""Stores values as objects of an S3 bucket, or of any server with the same protocol."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO

from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError, install_command
from seep.storage.keys import checked_key, checked_range
from seep.storage.s3_errors import in_words
from seep.storage.settings import Encryption, S3Settings
from seep.storage.store import AlreadyThere, NotThere
from seep.storage.streams import pieces, stream_of
from vmpool.aws.errors import code_of, failures

_ABSENT = ("NoSuchKey", "404")
#: Answers to `If-None-Match: *`: the key has an object; another write of the key is in progress.
_TAKEN, _CONTESTED = ("PreconditionFailed", "412"), ("ConditionalRequestConflict", "409")
#: Metadata with the id of the write, by which a write is recognised whose answer was lost.
_WRITER = "seep-writer"
#: Fields of a part that S3 needs to assemble an object.
_Sent = Sequence[Mapping[str, Any]]
_TRIES = 4
_MOST_PARTS = 10_000
#: The limit of S3 for one request.
_DELETED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class _Write:
    """One call of `put`."""

    key: str
    id: str
    new: bool  #: whether the server must refuse an existing key


class S3Store:
    """A `BlobStore` on S3; several threads may use it.

    The library repeats failed calls. Large values are sent in parts, several at a time; if one fails, no part is kept.
    """

    def __init__(self, bucket: str, prefix: str = "", settings: S3Settings | None = None) -> None:
        self._settings = settings or S3Settings()
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" * bool(prefix.strip("/"))
        self.name = f"s3://{bucket}/{self._prefix}".rstrip("/")
        self._client = _connected(self._settings, self.name)
        self._encryption = _encryption(self._settings)
        #: Whether the server is known to refuse overwriting; Amazon's is.
        self._refuses = self._settings.endpoint_url is None
        self._probing = threading.Lock()

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        checked_key(key)
        if new and not self._settings.conditional:
            self._look_first(key)
        write = _Write(key, uuid.uuid4().hex, new and self._settings.conditional)
        found = pieces(parts, self._settings.part_size)
        begin = [*itertools.islice(found, 2)]
        if len(begin) == 2:
            return self._put_in_parts(write, itertools.chain(begin, found))
        return self._put_whole(write, b"".join(begin))

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        checked_range(start, length)
        if length == 0:
            self.size(key)  # S3 has no ranges of zero bytes
            return memoryview(b"")
        whole = start == 0 and length is None
        range_ = {} if whole else {"Range": f"bytes={start}-{'' if length is None else start + length - 1}"}
        return memoryview(self._fetch(key, range_))

    def open(self, key: str) -> BinaryIO:
        return stream_of(lambda start, length: self.get(key, start, length), self.size(key))

    def size(self, key: str) -> int:
        return int(self._head(key)["ContentLength"])

    def list(self, prefix: str = "") -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        try:
            for page in pages:
                yield from (each["Key"].removeprefix(self._prefix) for each in page.get("Contents", ()))
        except failures() as reason:
            raise in_words(reason, "listed", f"{self.name}/{prefix}") from reason

    def delete(self, keys: Iterable[str]) -> None:
        left = iter(keys)
        while batch := [*itertools.islice(left, _DELETED_AT_ONCE)]:
            objects = [{"Key": self._prefix + checked_key(key)} for key in batch]
            answer = self._call("delete_objects", "deleted", batch[0], Delete={"Objects": objects, "Quiet": True})
            for error in answer.get("Errors", ()):
                if error["Code"] not in _ABSENT:
                    said = f"{self.name}/{error['Key'].removeprefix(self._prefix)} cannot be deleted"
                    raise EnvironmentFault(f"{said} ({error['Code']}: {error.get('Message', '')})")

    def close(self) -> None:
        self._client.close()

    def _put_whole(self, write: _Write, value: bytes) -> int:
        """Writes an object by one request; repeats it while concurrent writes of the key come and then fail."""
        for _ in range(_TRIES):
            if self._call("put_object", "written", write.key, _TAKEN + _CONTESTED, Body=value, **self._terms(write)):
                self._probe(write, value)
                return len(value)
            if self._is_ours(write):
                return len(value)
        raise EnvironmentFault(f"{self.name}/{write.key} cannot be written: others keep trying to do the same")

    def _put_in_parts(self, write: _Write, parts: Iterator[bytes]) -> int:
        begun = self._call("create_multipart_upload", "written", write.key, **self._tags(write))
        upload = {"UploadId": begun["UploadId"]}
        try:
            size, sent = self._send(write.key, upload, parts)
            self._complete(write, upload, sent)
        except BaseException:
            with suppress(SeepError):  # if this fails too, a life-cycle rule of the bucket can remove the parts
                self._call("abort_multipart_upload", "taken back", write.key, ("NoSuchUpload",), **upload)
            raise
        return size

    def _send(self, key: str, upload: dict[str, Any], parts: Iterator[bytes]) -> tuple[int, _Sent]:
        """Sends a bounded number of parts at a time, and prepares no further ones; returns their size and ids."""
        size, sent, under_way = 0, deque[dict[str, Any]](), deque[Future[dict[str, Any]]]()
        with ThreadPoolExecutor(self._settings.uploads, "seep upload") as senders:
            for number, part in enumerate(parts, 1):
                if len(under_way) == self._settings.uploads:
                    sent.append(under_way.popleft().result())
                under_way.append(senders.submit(self._send_part, key, upload, number, part))
                size += len(part)
            sent.extend(each.result() for each in under_way)
        return size, sent

    def _send_part(self, key: str, upload: dict[str, Any], number: int, part: bytes) -> dict[str, Any]:
        if number > _MOST_PARTS:
            raise UserError(
                f"{self.name}/{key} is larger than {_MOST_PARTS} parts of {self._settings.part_size.human_readable()}, "
                "which is all that S3 takes: raise storage.s3.part_size"
            )
        answer = self._call("upload_part", "written", key, PartNumber=number, Body=part, **upload)
        return {"ETag": answer["ETag"], "PartNumber": number}

    def _complete(self, write: _Write, upload: dict[str, Any], sent: _Sent) -> None:
        """Assembles an object from the parts. A call that the library repeats may find the object already assembled."""
        refusals = (*_TAKEN, *_CONTESTED, "NoSuchUpload") if write.new else ()
        condition = {"IfNoneMatch": "*"} if write.new else {}
        asked = {"MultipartUpload": {"Parts": [*sent]}, **upload, **condition}
        done = self._call("complete_multipart_upload", "written", write.key, refusals, **asked)
        if done is None and not self._is_ours(write):
            raise EnvironmentFault(f"{self.name}/{write.key} cannot be written: others try to do the same; try again")

    def _is_ours(self, write: _Write) -> bool:
        """After a refusal, whether the object is our own write, whose answer was lost; False if there is no object."""
        try:
            writer = self._head(write.key)["Metadata"].get(_WRITER)
        except NotThere:
            return False
        if writer != write.id:
            raise AlreadyThere(f"{self.name} has something under {write.key} already")
        return True

    def _probe(self, write: _Write, value: bytes) -> None:
        """Repeats the first conditional write: a server that accepts it again would accept anyone's."""
        with self._probing:
            if not write.new or self._refuses:
                return
            if self._call("put_object", "written", write.key, _TAKEN + _CONTESTED, Body=value, **self._terms(write)):
                raise UserError(
                    f"the server at {self._settings.endpoint_url} overwrites what it must not (If-None-Match), so "
                    "two runs of a query could not be told apart: set storage.s3.conditional to false, and see to it "
                    "that there is only one"
                )
            self._refuses = True

    def _look_first(self, key: str) -> None:
        with suppress(NotThere):
            self.size(key)
            raise AlreadyThere(f"{self.name} has something under {key} already")

    def _terms(self, write: _Write) -> dict[str, Any]:
        return self._tags(write) | ({"IfNoneMatch": "*"} if write.new else {})

    def _tags(self, write: _Write) -> dict[str, Any]:
        return self._encryption | ({"Metadata": {_WRITER: write.id}} if write.new else {})

    def _head(self, key: str) -> Any:
        return self._there(key, self._call("head_object", "read", checked_key(key), _ABSENT))

    def _fetch(self, key: str, range_: dict[str, str]) -> bytes:
        """Reads a range. The library repeats the call, but not the transfer of the content."""
        for left in reversed(range(_TRIES)):
            answer = self._call("get_object", "read", checked_key(key), (*_ABSENT, "InvalidRange", "416"), **range_)
            if not answer and range_ and self._head(key):
                return b""  # the range begins beyond the end
            try:
                return bytes(self._there(key, answer)["Body"].read())
            except failures() as reason:
                if not left:
                    raise in_words(reason, "read", f"{self.name}/{key}") from reason
        raise InternalError("the last try returns or raises")

    def _there(self, key: str, answer: Any) -> Any:
        if answer is None:
            raise NotThere(f"{self.name} has nothing under {key}")
        return answer

    def _call(self, action: str, done: str, key: str, refusals: tuple[str, ...] = (), **asked: Any) -> Any:
        """Calls the library and returns the answer; returns None for the error codes in `refusals`."""
        named = {} if action == "delete_objects" else {"Key": self._prefix + key}
        try:
            return getattr(self._client, action)(Bucket=self._bucket, **named, **asked)
        except failures() as reason:
            if code_of(reason) in refusals:
                return None
            raise in_words(reason, done, f"{self.name}/{key}") from reason


def _connected(settings: S3Settings, about: str) -> Any:
    try:
        boto3, config = import_module("boto3"), import_module("botocore.config")
    except ImportError as reason:
        raise UserError(f"{about} needs boto3, which is not installed: {install_command('cloud')}") from reason
    try:
        session = boto3.Session(profile_name=settings.profile, region_name=settings.region)
        return session.client("s3", endpoint_url=settings.endpoint_url, config=config.Config(**_manners(settings)))
    except failures() as reason:
        raise in_words(reason, "reached", about) from reason


def _manners(settings: S3Settings) -> dict[str, Any]:
    """Settings for retries, time-outs and connections; other servers may not know Amazon's newer checksums."""
    checksums = "when_supported" if settings.endpoint_url is None else "when_required"
    return {
        "retries": {"mode": "standard", "max_attempts": 6},
        "connect_timeout": 5,
        "read_timeout": 60,
        "max_pool_connections": max(10, 2 * settings.uploads),
        "request_checksum_calculation": checksums,
        "response_checksum_validation": checksums,
    }


def _encryption(settings: S3Settings) -> dict[str, str]:
    match settings.encryption:
        case Encryption.BUCKET:
            return {}
        case Encryption.S3:
            return {"ServerSideEncryption": "AES256"}
        case Encryption.KMS:
            key = {"SSEKMSKeyId": settings.kms_key} if settings.kms_key else {}
            return {"ServerSideEncryption": "aws:kms", **key}
