"""What is special about S3: parts, conditions, lost answers, encryption, errors in words; on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from primitives.errors import EnvironmentFault, UserError
from seep.storage import s3 as module
from seep.storage.s3 import S3Store
from seep.storage.s3_errors import in_words
from seep.storage.store import AlreadyThere, NotThere
from tests.storage.backends import BUCKET, PART, client, make_bucket, s3_settings, sign_in


@pytest.fixture(autouse=True)
def signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(monkeypatch)


@pytest.fixture
def store(s3: str, request: pytest.FixtureRequest) -> Iterator[S3Store]:
    """A place that no other test uses."""
    make_bucket(s3)
    made = S3Store(BUCKET, f"/{request.node.name.partition('[')[0]}/", s3_settings(s3))
    yield made
    made.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library repeats calls without a pause."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)


def test_a_value_is_an_object_under_prefix_and_key(store: S3Store, s3: str) -> None:
    store.put("orders/1", [b"value"])
    assert store.name == f"s3://{BUCKET}/test_a_value_is_an_object_under_prefix_and_key"
    key = f"{store.name.removeprefix(f's3://{BUCKET}/')}/orders/1"
    assert client(s3).get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"value"


def test_a_store_without_a_prefix_uses_the_whole_bucket(s3: str) -> None:
    make_bucket(s3, "another")
    store = S3Store("another", "", s3_settings(s3))
    store.put("orders/1", [b"value"])
    assert (store.name, list(store.list())) == ("s3://another", ["orders/1"])


def broken() -> Iterator[bytes]:
    yield b"x" * 5 * PART
    raise RuntimeError("the writer died")


def test_nothing_is_left_of_an_upload_whose_writer_fails(store: S3Store, s3: str) -> None:
    with pytest.raises(RuntimeError, match="the writer died"):
        store.put("orders/1", broken())
    assert "Uploads" not in client(s3).list_multipart_uploads(Bucket=BUCKET)


def test_nothing_is_left_of_an_upload_that_comes_too_late(store: S3Store, s3: str) -> None:
    store.put("orders/1", [b"value"])
    with pytest.raises(AlreadyThere):
        store.put("orders/1", [b"x" * 5 * PART], new=True)
    assert "Uploads" not in client(s3).list_multipart_uploads(Bucket=BUCKET)
    assert bytes(store.get("orders/1")) == b"value"


def test_a_value_that_needs_more_parts_than_there_may_be_is_refused(
    store: S3Store, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_PARTS", 3)
    with pytest.raises(UserError, match=r"larger than 3 parts of .*: raise storage.s3.part_size"):
        store.put("orders/1", [b"x" * 5 * PART])
    assert "Uploads" not in client(s3).list_multipart_uploads(Bucket=BUCKET)


def test_deletions_go_in_batches(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    store._client.meta.events.register("before-call.s3.DeleteObjects", lambda **_: calls.append(1))
    monkeypatch.setattr(module, "_DELETED_AT_ONCE", 4)
    for number in range(10):
        store.put(f"orders/{number}", [b"value"])
    store.delete(f"orders/{number}" for number in range(10))
    assert (list(store.list()), len(calls)) == ([], 3)


# --- something new ----------------------------------------------------------------------------------------------------


def lose_one_answer(store: S3Store, operation: str) -> None:
    """The server does what it is asked to do; what comes back first is an error."""
    lost: list[AWSResponse] = []

    def send(request: Any, **_: Any) -> AWSResponse | None:
        if lost:
            return None
        lost.append(store._client._endpoint.http_session.send(request))
        return AWSResponse(request.url, 503, {}, _Raw(b""))

    store._client.meta.events.register(f"before-send.s3.{operation}", send)


class _Raw:
    """The body of an answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("operation", "size"), [("PutObject", 5), ("CompleteMultipartUpload", 5 * PART)])
def test_a_writer_whose_answer_was_lost_still_knows_that_it_has_won(store: S3Store, operation: str, size: int) -> None:
    key = f"runs/{operation}"
    lose_one_answer(store, operation)
    assert store.put(key, [b"x" * size], new=True) == size
    with pytest.raises(AlreadyThere, match=key):
        store.put(key, [b"x" * size], new=True)


def forget_the_condition(store: S3Store) -> None:
    """As if the server did not know it."""

    def forget(params: dict[str, Any], **_: Any) -> None:
        params["headers"].pop("If-None-Match", None)

    store._client.meta.events.register("before-call.s3.PutObject", forget)


def test_a_server_that_does_not_know_conditions_is_found_out(store: S3Store) -> None:
    forget_the_condition(store)
    with pytest.raises(UserError, match=r"overwrites .* set storage.s3.conditional to false"):
        store.put("runs/1", [b"value"], new=True)


def test_with_a_server_that_does_not_know_conditions_a_writer_looks_first(s3: str) -> None:
    make_bucket(s3)
    store = S3Store(BUCKET, "unconditional", s3_settings(s3, conditional=False))
    forget_the_condition(store)
    store.put("runs/1", [b"value"], new=True)
    with pytest.raises(AlreadyThere):
        store.put("runs/1", [b"another"], new=True)


def test_a_writer_that_meets_others_who_fail_tries_again(store: S3Store) -> None:
    """S3 answers so while somebody else writes the same key, and does not say how that ends."""
    answers = [409, 409]

    def send(request: Any, **_: Any) -> AWSResponse | None:
        if not answers:
            return None
        body = b"<Error><Code>ConditionalRequestConflict</Code><Message>busy</Message></Error>"
        return AWSResponse(request.url, answers.pop(), {}, _Raw(body))

    store._client.meta.events.register("before-send.s3.PutObject", send)
    assert store.put("runs/1", [b"value"], new=True) == 5
    assert answers == []


# --- encryption -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 3 * PART])
@pytest.mark.parametrize(
    ("settings", "method", "key"),
    [
        ({}, "AES256", None),
        ({"encryption": "s3"}, "AES256", None),
        ({"encryption": "kms"}, "aws:kms", None),
        ({"encryption": "kms", "kms_key": "arn:aws:kms:us-east-1:1:key/a"}, "aws:kms", "arn:aws:kms:us-east-1:1:key/a"),
    ],
)
def test_objects_are_encrypted_as_the_settings_say(
    s3: str, settings: dict[str, str], method: str, key: str | None, size: int
) -> None:
    make_bucket(s3)
    asked = []
    store = S3Store(BUCKET, "encrypted", s3_settings(s3, **settings))
    for operation in ("PutObject", "CreateMultipartUpload"):
        store._client.meta.events.register(
            f"before-call.s3.{operation}", lambda params, **_: asked.append(params["headers"])
        )
    store.put("orders/1", [b"x" * size])
    assert bytes(store.get("orders/1")) == b"x" * size
    [headers] = asked
    assert headers.get("x-amz-server-side-encryption") == (method if settings else None)
    assert headers.get("x-amz-server-side-encryption-aws-kms-key-id") == key
    if settings:
        found = client(s3).head_object(Bucket=BUCKET, Key="encrypted/orders/1")
        assert found["ServerSideEncryption"] == method


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_named(s3: str) -> None:
    store = S3Store("no-such-bucket", "", s3_settings(s3))
    with pytest.raises(UserError, match=r"s3://no-such-bucket/a cannot be written \(NoSuchBucket: .*; make the bucket"):
        store.put("a", [b"value"])
    with pytest.raises(UserError, match="make the bucket"):
        list(store.list())


def test_an_object_that_is_not_there_is_no_fault_of_the_bucket(store: S3Store) -> None:
    for length in (None, 0, 5):
        with pytest.raises(NotThere, match="orders/1"):
            store.get("orders/1", 0, length)


def test_missing_credentials_are_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3Store(BUCKET, "", s3_settings(s3))
    with pytest.raises(EnvironmentFault, match=r"no credentials were found: set storage.s3.profile"):
        store.get("orders/1")


def test_a_profile_that_is_not_there_is_named(s3: str) -> None:
    with pytest.raises(UserError, match=r"set storage.s3.profile to one that ~/.aws/config has"):
        S3Store(BUCKET, "", s3_settings(s3, profile="nobody"))


@pytest.mark.usefixtures("at_once")
def test_a_server_that_does_not_answer_is_named() -> None:
    store = S3Store(BUCKET, "", s3_settings("http://127.0.0.1:1"))
    with pytest.raises(
        EnvironmentFault, match=r"s3://checkpoints/orders/1 cannot be read .*cannot be reached; look at"
    ):
        store.get("orders/1")


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        ("AccessDenied", EnvironmentFault, r"they need s3:GetObject, s3:PutObject"),
        ("403", EnvironmentFault, r"they need s3:GetObject, s3:PutObject"),
        ("ExpiredToken", EnvironmentFault, "log in again"),
        ("SlowDown", EnvironmentFault, "the service is busy; try again"),
        ("PermanentRedirect", UserError, "set storage.s3.region to the region of the bucket"),
        ("KMS.NotFoundException", UserError, "set storage.s3.kms_key"),
        ("SomethingNew", EnvironmentFault, "see the service's documentation of this code"),
    ],
)
def test_a_refusal_comes_with_what_to_do(code: str, kind: type[Exception], advice: str) -> None:
    refusal = ClientError({"Error": {"Code": code, "Message": "No."}}, "PutObject")
    error = in_words(refusal, "written", "s3://bucket/orders/1")
    assert type(error) is kind
    assert str(error).startswith(f"s3://bucket/orders/1 cannot be written ({code}: No); ")
    assert advice in str(error)


def test_what_cannot_be_deleted_is_named(store: S3Store) -> None:
    def send(request: Any, **_: Any) -> AWSResponse:
        body = (
            f"<DeleteResult><Error><Key>{store._prefix}orders/1</Key><Code>AccessDenied</Code></Error></DeleteResult>"
        )
        return AWSResponse(request.url, 200, {}, _Raw(body.encode()))

    store._client.meta.events.register("before-send.s3.DeleteObjects", send)
    with pytest.raises(EnvironmentFault, match=r"orders/1 cannot be deleted \(AccessDenied"):
        store.delete(["orders/1"])


def test_a_reading_that_breaks_off_is_repeated(store: S3Store) -> None:
    store.put("orders/1", [b"a value"])
    cuts = [b"a ", b"a va"]

    def send(request: Any, **_: Any) -> AWSResponse | None:
        if not cuts:
            return None
        return AWSResponse(request.url, 200, {"content-length": "7"}, _Cut(cuts.pop()))

    store._client.meta.events.register("before-send.s3.GetObject", send)
    assert bytes(store.get("orders/1")) == b"a value"
    assert cuts == []


class _Cut(_Raw):
    """A body that ends before its time."""

    def read(self, _: int | None = None) -> bytes:
        content, self._content = self._content, b""
        return content
