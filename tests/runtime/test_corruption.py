"""Damage of every kind to every kind of file of a stored query: never wrong state, always a named error or another one.

The checkpoints are those of a real run. Restoring is what a run does before anything is processed: it finds a
checkpoint, reads the state of all slots, and goes back to the one before if it is told to.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import seep
from formats.manifest import Manifest, manifests_of
from formats.persist import retrieve_state
from primitives.errors import EnvironmentFault
from primitives.slots import SlotSet
from primitives.state.chunk import merge_chunks
from seep.driver.options import RunOptions
from seep.query.program import Program
from seep.running.resume import catalogue_of, resume_before, resume_of
from seep.spark.session import Host
from seep.storage.catalogue import Catalogue
from seep.storage.layout import ClaimKey, ManifestKey
from seep.storage.local import LocalStore
from seep.storage.location import open_store
from seep.storage.records import Records
from seep.storage.settings import S3Settings, StorageSettings
from seep.storage.store import BlobStore
from tests.runtime.counting import committed, numbers, start, wait_until
from tests.runtime.durable_driver import PARTITIONS, RATE, SCHEMA
from tests.storage.backends import BUCKET, make_bucket, s3_server, sign_in
from tests.storage.damage import KINDS, WAYS, How, damaged, kind_of

QUERY = "stored"
#: For each kind of file and of damage.
SEEDS = 3

#: Rows by operator and container.
State = Mapping[str, pa.Table]


def few_of_many(batch: pa.RecordBatch) -> dict[str, Any]:
    """Many keys at first, of which only a few come again: so that what changes is less than what there is."""
    n = batch["n"].to_numpy()
    return {"key": np.where(n % 1_000_000 < 300, n, n % 10), "n": batch["n"]}


def stored_query() -> seep.Query:
    query = seep.Query(QUERY)
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=PARTITIONS))
    counted = source.map("map", few_of_many).key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"))
    counted.key_by("key").aggregate("changes", n=seep.count()).sink("out", seep.sinks.collect())
    return query


class Stored(NamedTuple):
    """What a query has in a store, and what is right."""

    storage: StorageSettings
    store: BlobStore
    files: Mapping[str, bytes]
    manifests: Mapping[int, Manifest]  #: the newest first
    right: Mapping[int, State]  #: by checkpoint

    @property
    def savepoints(self) -> list[int]:
        return [id for id, manifest in self.manifests.items() if manifest.savepoint]


@pytest.fixture(scope="module")
def stored(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Two savepoints, with chains of incremental checkpoints before and after them; and signs of all that goes on."""
    storage = StorageSettings(location=str(tmp_path_factory.mktemp("stored")), every=1, keep=20, chain=4)
    options = {"storage": storage, "checkpoint": 0.2, "rate": seep.Rate(RATE), "parallelism": {"counter": 2}}
    with start(host, stored_query(), **options) as run:
        for _ in range(2):
            wait_until(lambda: len(run.events.of("persisted")) >= 3)
            run.savepoint()
            committed(run, 10)
        wait_until(lambda: len(run.events.of("persisted")) >= 8)
    store = LocalStore(str(storage.location))
    manifests = {each.id: each for each in Catalogue(store, QUERY, manifests_of(QUERY)).complete()}
    right = {id: state_of(manifest, store) for id, manifest in manifests.items()}
    leave_signs(store, min(manifests))
    return Stored(storage, store, {key: bytes(store.get(key)) for key in store.list()}, manifests, right)


def leave_signs(store: BlobStore, oldest: int) -> None:
    """A reader, a removal that has only begun, and an attempt that was given up."""
    catalogue = Catalogue(store, QUERY, manifests_of(QUERY))
    catalogue.pin(oldest + 1, "a reader")
    Records(store, QUERY).announce_removal(oldest, "abc")
    catalogue.enter("another run").begin().abandon()


def state_of(manifest: Manifest, store: BlobStore) -> State:
    """The rows of all slots."""
    found: dict[str, pa.Table] = {}
    for operator, component in manifest.components.items():
        for name in component.containers:
            chunks = retrieve_state(component, SlotSet.full(component.slot_bits), store.get)
            rows = merge_chunks([chunk for chunk in chunks if chunk.name == name]).rows
            found[f"{operator}/{name}"] = pa.Table.from_batches([rows]).sort_by("key")
    return found


def test_what_is_damaged_has_files_of_every_kind(stored: Stored) -> None:
    assert {kind_of(key) for key in stored.files} == set(KINDS)
    assert len(stored.savepoints) == 2
    chained = [manifest for manifest in stored.manifests.values() if is_chained(manifest)]
    assert len(chained) > len(stored.manifests) / 2


def is_chained(manifest: Manifest) -> bool:
    """Whether it builds on checkpoints before it."""
    blobs = [blob for component in manifest.components.values() for blob in component.every_blob()]
    return any(blob.epoch < manifest.epoch for blob in blobs)


# --- restoring --------------------------------------------------------------------------------------------------------


def options_of(stored: Stored, **more: Any) -> RunOptions:
    return RunOptions(storage=stored.storage, **({"restore": "latest"} | more))


def restored(stored: Stored, options: RunOptions) -> tuple[int, State]:
    """Which checkpoint a run would begin from, and the state that it would have."""
    program: Program | None = stored_query().compile(resume=resume_of(options, QUERY))
    while True:
        assert program is not None
        assert program.resume is not None
        catalogue = catalogue_of(options, QUERY)
        assert catalogue is not None
        try:
            manifest = catalogue.standing(program.resume.checkpoint)
            return manifest.id, state_of(manifest, stored.store)
        except EnvironmentFault:
            program = resume_before(program, options)
            if program is None:
                raise


def needed(stored: Stored, id: int) -> set[str]:
    """The files without which a checkpoint is none."""
    own = {str(kind(QUERY, id)) for kind in (ClaimKey, ManifestKey)}
    return own | stored.manifests[id].blobs


def untouched(stored: Stored, different: Mapping[str, Any]) -> list[int]:
    """Checkpoints of which nothing is different, the newest first."""
    standing = [id for id in stored.manifests if id != min(stored.manifests)]
    return [id for id in standing if needed(stored, id).isdisjoint(different)]


def check(stored: Stored, different: Mapping[str, bytes | None]) -> None:
    """All that a run can ask for: the latest, with or without falling back, and a savepoint by its number."""
    newest = next(iter(stored.manifests))
    sound = untouched(stored, different)
    if (outcome := tried(stored, different)) is not None:
        gone = {str(kind(QUERY, newest)) for kind in (ClaimKey, ManifestKey)}
        assert outcome == newest or gone & different.keys(), "an older one, without a word"
    outcome = tried(stored, different, fall_back=True)
    if sound:
        assert outcome is not None
        assert outcome >= sound[0]
    for id in stored.savepoints:
        outcome = tried(stored, different, restore=str(id))
        assert outcome in (None, id)
        assert outcome == id or id not in sound


def tried(stored: Stored, different: Mapping[str, bytes | None], **options: Any) -> int | None:
    """The checkpoint that was restored, exactly; None if it was refused, by a name that helps."""
    try:
        id, state = restored(stored, options_of(stored, **options))
    except EnvironmentFault as reason:
        refusal = str(reason)
    else:
        assert state == stored.right[id]
        return id
    assert any(key in refusal for key in different) or re.search(r"checkpoint \d+ of stored", refusal)
    return None


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_named_or_does_no_harm_and_the_one_before_is_exact(stored: Stored, kind: str, how: How) -> None:
    for seed in range(SEEDS):
        with damaged(stored.store, stored.files, kind, how, seed) as different:
            check(stored, different)


# --- on S3 ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_s3(stored: Stored) -> Iterator[Stored]:
    """The same files on a server for S3."""
    with s3_server() as url, pytest.MonkeyPatch.context() as patch:
        sign_in(patch)
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "1000")  # many small pages take long, and others test them
        make_bucket(url)
        s3 = S3Settings(region="us-east-1", endpoint_url=url)
        settings = StorageSettings(location=f"s3://{BUCKET}/corruption", s3=s3)
        store = open_store(str(settings.location), s3=s3)
        for key, data in stored.files.items():
            store.put(key, [data])
        yield stored._replace(storage=settings, store=store)
        store.delete([*store.list()])
        store.close()


@pytest.mark.acceptance
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_holds_on_s3(on_s3: Stored, kind: str) -> None:
    how = random.Random(kind).choice(WAYS)
    with damaged(on_s3.store, on_s3.files, kind, how, 0) as different:
        check(on_s3, different)
