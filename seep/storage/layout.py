"""The keys of all objects that seep has in durable storage. No other module makes or reads a key.

| key | what it is |
|---|---|
| `orders/runs/000003` | `RunKey`: the third run of the query `orders`, with a note |
| `orders/000000000012.claim` | `ClaimKey`: which run makes checkpoint 12, and on which ones it builds |
| `orders/000000000012/counter/0-totals` | `BlobKey`: a blob of it, of the operator `counter` |
| `orders/000000000012.manifest` | `ManifestKey`: now it is complete; or a seal: now it never will be |
| `orders/000000000012.pin-3fa9` | `PinKey`: somebody reads it |
| `orders/000000000012.removal-81c0` | `RemovalKey`: somebody removes it |
| `orders/backups/5b1c/counter/0/000001-…` | `BackupKey`: a checkpoint of `counter[0]`, kept while run 5b1c lasts |
| `orders/backups/5b1c/counter/0/000002-fenced` | `FenceKey`: incarnation 2 begins: earlier ones remove nothing more |
| `orders/backups/5b1c/counter/0/000002-begins-…` | `SuccessionKey`: from which of them incarnation 2 began |
| `orders/pushed/clicks/000000000007.batch` | `PushedBatchKey`: what batch 7 that Spark pushed to `clicks` consists of |
| `orders/pushed/clicks/3fa9-00000002/0-81c0` | `PieceKey`: the rows of partition 0 of batch 2 of Spark's stream 3fa9 |

`str()` of a key makes its text, and `key_of` reads it: each is the inverse of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from primitives.errors import InternalError
from primitives.graph import InstanceId
from seep.storage.keys import KeyForm, checked_key


@dataclass(frozen=True, slots=True)
class StoredKey:
    """The base of all kinds of keys."""

    query: str

    form: ClassVar[KeyForm]

    def __str__(self) -> str:
        """Returns the text of the key; raises InternalError if that would be read as another key."""
        text = checked_key(self.form.write(_values(self)))
        if self.form.read(text) != _values(self):
            raise InternalError(f"{self!r} cannot be a key of a store: {text!r} is read as another one")
        return text


@dataclass(frozen=True, slots=True)
class RunKey(StoredKey):
    """
    >>> str(RunKey("orders", 3)), key_of("orders/runs/000003")
    ('orders/runs/000003', RunKey(query='orders', generation=3))
    """

    generation: int

    form = KeyForm("{query}/runs/{generation:6}")


@dataclass(frozen=True, slots=True)
class OfCheckpoint(StoredKey):
    """The base of all keys of one checkpoint."""

    id: int


@dataclass(frozen=True, slots=True)
class ClaimKey(OfCheckpoint):
    form = KeyForm("{query}/{id:12}.claim")


@dataclass(frozen=True, slots=True)
class ManifestKey(OfCheckpoint):
    form = KeyForm("{query}/{id:12}.manifest")


@dataclass(frozen=True, slots=True)
class PinKey(OfCheckpoint):
    """A reader's protection of a checkpoint from removal. A checkpoint may have any number of them."""

    token: str

    form = KeyForm("{query}/{id:12}.pin-{token}")


@dataclass(frozen=True, slots=True)
class RemovalKey(OfCheckpoint):
    """The announcement of a checkpoint's removal. A checkpoint may have any number of them."""

    token: str

    form = KeyForm("{query}/{id:12}.removal-{token}")


@dataclass(frozen=True, slots=True)
class BlobKey(OfCheckpoint):
    """
    >>> str(BlobKey("orders", 12, "counter", "0-totals"))
    'orders/000000000012/counter/0-totals'
    """

    operator: str
    name: str

    form = KeyForm("{query}/{id:12}/{operator}/{name}")


@dataclass(frozen=True, slots=True)
class OfBackup(StoredKey):
    """The base of all keys of one instance's backup."""

    run: str
    operator: str
    index: int
    number: int  #: the incarnation's number


@dataclass(frozen=True, slots=True)
class BackupKey(OfBackup):
    """
    >>> str(BackupKey("orders", "5b1c", "counter", 0, 1, 7, 120, None))
    'orders/backups/5b1c/counter/0/000001-000000007-000000000120-full'
    """

    serial: int
    epoch: int
    base: int | None

    form = KeyForm("{query}/backups/{run}/{operator}/{index:1}/{number:6}-{serial:9}-{epoch:12}-{base:12|full}")

    @property
    def order(self) -> tuple[int, int]:
        return self.number, self.serial


@dataclass(frozen=True, slots=True)
class FenceKey(OfBackup):
    """The fence of an incarnation that is about to read its backup: earlier ones remove no backups any more."""

    form = KeyForm("{query}/backups/{run}/{operator}/{index:1}/{number:6}-fenced")


@dataclass(frozen=True, slots=True)
class SuccessionKey(OfBackup):
    """The mark of the backup, if any, from which an incarnation began: later backups of earlier ones do not count."""

    after: int | None
    serial: int | None
    epoch: int | None
    base: int | None

    form = KeyForm(
        "{query}/backups/{run}/{operator}/{index:1}/"
        "{number:6}-begins-{after:6|none}-{serial:9|none}-{epoch:12|none}-{base:12|full}"
    )

    @property
    def last(self) -> tuple[int, int]:
        """Returns the highest order of an earlier incarnation's backup that counts."""
        return (-1, -1) if self.after is None or self.serial is None else (self.after, self.serial)


@dataclass(frozen=True, slots=True)
class OfPushed(StoredKey):
    """The base of all keys of rows that Spark has pushed to a source."""

    source: str


@dataclass(frozen=True, slots=True)
class PushedBatchKey(OfPushed):
    number: int

    form = KeyForm("{query}/pushed/{source}/{number:12}.batch")


@dataclass(frozen=True, slots=True)
class PieceKey(OfPushed):
    """
    >>> key_of(str(PieceKey("orders", "clicks", "3fa9-12", 2, 0, "81c0")))
    PieceKey(query='orders', source='clicks', stream='3fa9-12', id=2, partition=0, token='81c0')
    """

    stream: str
    id: int
    partition: int
    token: str

    form = KeyForm("{query}/pushed/{source}/{stream}-{id:8}/{partition:1}-{token}")


KINDS: tuple[type[StoredKey], ...] = (
    BlobKey,
    BackupKey,
    PieceKey,
    PushedBatchKey,
    ClaimKey,
    ManifestKey,
    PinKey,
    RemovalKey,
    FenceKey,
    SuccessionKey,
    RunKey,
)


def key_of(text: str) -> StoredKey | None:
    """Returns the key that a text stands for, or None if it is not one of seep's."""
    for kind in KINDS:
        if (values := kind.form.read(text)) is not None:
            return kind(**values)
    return None


def is_blob(key: str) -> bool:
    """Whether a key is of a blob, whose value never changes.

    >>> is_blob("orders/000000000012/counter/0-totals"), is_blob("orders/000000000012.manifest")
    (True, False)
    """
    return BlobKey.form.read(key) is not None


def _values(key: StoredKey) -> dict[str, Any]:
    return {each.name: getattr(key, each.name) for each in fields(key)}


# --- prefixes of all keys of one thing, and of no others --------------------------------------------------------------


def query_prefix(query: str) -> str:
    return f"{query}/"


def parts_prefix(query: str, id: int) -> str:
    """Returns the prefix of all parts of a checkpoint except its blobs."""
    return f"{query}/{id:012d}."


def runs_prefix(query: str) -> str:
    return RunKey.form.prefix(query=query)


def blobs_prefix(query: str, id: int) -> str:
    return BlobKey.form.prefix(query=query, id=id)


def backups_prefix(query: str, run: str, owner: InstanceId | None = None) -> str:
    """Returns the prefix of all backups of a run, or of one instance of it.

    >>> backups_prefix("orders", "5b1c"), backups_prefix("orders", "5b1c", InstanceId("counter", 0))
    ('orders/backups/5b1c/', 'orders/backups/5b1c/counter/0/')
    """
    of_owner = {} if owner is None else {"operator": owner.operator, "index": owner.index}
    return BackupKey.form.prefix(query=query, run=run, **of_owner)


def pushed_prefix(query: str, source: str) -> str:
    """Returns the prefix of everything that Spark has pushed to a source."""
    return PieceKey.form.prefix(query=query, source=source)


def pieces_prefix(query: str, source: str, stream: str, id: int) -> str:
    """Returns the prefix of all pieces of a batch, including those of failed attempts."""
    return PieceKey.form.prefix(query=query, source=source, stream=stream, id=id)


# --- contents ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CheckpointKeys:
    """The keys of one checkpoint that exist."""

    claim: str = ""
    manifest: str = ""
    pins: list[str] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether the checkpoint may still be completed."""
        return bool(self.claim) and not self.manifest and not self.removals

    @property
    def settled(self) -> bool:
        """Whether the checkpoint is complete or sealed. A manifest without a claim came too late and does not count."""
        return bool(self.claim) and bool(self.manifest)

    @property
    def standing(self) -> bool:
        """Whether the checkpoint is settled and no removal of it is announced."""
        return self.settled and not self.removals

    def add(self, key: OfCheckpoint, text: str) -> None:
        match key:
            case ClaimKey():
                self.claim = text
            case ManifestKey():
                self.manifest = text
            case PinKey():
                self.pins.append(text)
            case RemovalKey():
                self.removals.append(text)
            case _:
                self.blobs.append(text)


@dataclass(slots=True)
class Contents:
    """The keys of one query that exist."""

    generations: list[int] = field(default_factory=list)
    checkpoints: dict[int, CheckpointKeys] = field(default_factory=dict)
    backups: dict[str, list[str]] = field(default_factory=dict)  #: by run
    pushed: dict[str, list[str]] = field(default_factory=dict)  #: batches and pieces, by source

    def checkpoint(self, id: int) -> CheckpointKeys:
        """Returns the keys of a checkpoint; an empty record if it has none."""
        return self.checkpoints.get(id) or CheckpointKeys()

    def add(self, key: StoredKey, text: str) -> None:
        match key:
            case OfCheckpoint():
                self.checkpoints.setdefault(key.id, CheckpointKeys()).add(key, text)
            case RunKey():
                self.generations.append(key.generation)
            case OfBackup():
                self.backups.setdefault(key.run, []).append(text)
            case OfPushed():
                self.pushed.setdefault(key.source, []).append(text)


def contents(keys: Iterable[str]) -> Mapping[str, Contents]:
    """Sorts keys by query; leaves out keys that are not seep's.

    >>> found = contents(["orders/000000000012.claim", "orders/000000000012/counter/0-totals"])["orders"]
    >>> found.checkpoint(12).open, found.checkpoint(12).blobs
    (True, ['orders/000000000012/counter/0-totals'])
    """
    found: dict[str, Contents] = {}
    for text in keys:
        if (key := key_of(text)) is not None:
            found.setdefault(key.query, Contents()).add(key, text)
    return found
