"""Stores by their location, and the settings that name one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from formats.settings import WrongSettings, checked
from primitives.errors import EnvironmentFault, UserError
from seep.storage.arrow_fs import ArrowStore
from seep.storage.cached import CachedStore
from seep.storage.location import open_store, store_of
from seep.storage.s3 import S3Store
from seep.storage.settings import StorageSettings


def test_a_path_and_its_url_are_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in ("some place", f"{tmp_path}/some place", f"file://{tmp_path}/some%20place", "./some place/"):
        store = open_store(location)
        assert store.name == f"file://{tmp_path}/some%20place"
        store.put("a", [location.encode()])
    assert (tmp_path / "some place" / "a").read_bytes() == b"./some place/"


@pytest.mark.parametrize("location", ["memory://here", "/data/here", "relative"])
def test_the_name_of_a_store_is_its_location(location: str) -> None:
    name = open_store(location).name
    assert open_store(name).name == name


def test_memory_of_one_name_is_one_place() -> None:
    open_store("memory://one").put("a", [b"value"])
    assert bytes(open_store("memory://one").get("a")) == b"value"
    assert list(open_store("memory://another").list()) == []


def test_a_bucket_is_opened_without_asking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    store = open_store("s3://bucket/some/prefix/")
    assert isinstance(store, S3Store)
    assert store.name == "s3://bucket/some/prefix"


def test_a_cache_keeps_blobs_and_nothing_else(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), cache=1000)
    assert isinstance(store, CachedStore)
    for key in ("orders/000000000001.manifest", "orders/000000000001/counter/0-totals"):
        store.put(key, [b"12345"])
        store.get(key)
    assert store.nbytes == 5


@pytest.mark.parametrize(
    ("location", "advice"),
    [
        ("ftp://host/dir", "nothing is known of ftp://; choose a directory, or one of file://, memory://, s3://"),
        ("", "is not complete; write a directory"),
        ("file://", "is not complete"),
        ("s3://", "is not complete; write a directory, or such as s3://bucket/prefix"),
        ("gs://", "is not complete"),
        ("hdfs:///", "is not complete"),
        ("file://data/checkpoints", "names a machine, 'data'; a path has three slashes"),
    ],
)
def test_a_location_that_makes_no_sense_is_refused_with_what_to_write(location: str, advice: str) -> None:
    with pytest.raises(UserError, match=advice):
        open_store(location)


def test_a_missing_library_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UserError, match=r"s3://bucket needs boto3, .*: pip install 'seep-streaming\[cloud\]'"):
        open_store("s3://bucket")


def test_hdfs_without_hadoop_is_refused_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_HOME", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(
        EnvironmentFault, match=r"hdfs://namenode:8020/dir cannot be used .* set JAVA_HOME, HADOOP_HOME"
    ):
        open_store("hdfs://namenode:8020/dir")


def test_a_bucket_of_google_is_opened_without_asking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nowhere")
    store = open_store("gs://anonymous@bucket/some/prefix/")
    assert store.name == "gs://anonymous@bucket/some/prefix"
    assert isinstance(store, ArrowStore)


def test_settings_without_a_location_name_no_store() -> None:
    assert store_of(StorageSettings()) is None


def test_settings_name_a_store(tmp_path: Path) -> None:
    content = {"location": str(tmp_path), "cache": "1MiB", "keep": 5, "codec": "zstd"}
    assert isinstance(store_of(checked(StorageSettings, content, "storage")), CachedStore)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"locaton": "/data"}, "locaton is unknown; known are location, every, keep"),
        ({"keep": 0}, "keep is 0"),
        ({"codec": "gzip"}, "codec is 'gzip'"),
        ({"s3": {"part_size": "1MiB"}}, "s3.part_size is '1MiB'"),
        ({"s3": {"kms_key": "mine"}}, "s3: kms_key is given, but encryption is bucket; set it to kms"),
    ],
)
def test_settings_that_make_no_sense_are_refused(content: dict[str, object], problem: str) -> None:
    with pytest.raises(WrongSettings, match=problem):
        checked(StorageSettings, content, "storage")
