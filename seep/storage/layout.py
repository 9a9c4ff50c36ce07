"""Where everything of a query's checkpoints is: the only place that makes and reads keys.

| key | what it is |
|---|---|
| `orders/runs/000003` | the third run of the query `orders`, with a note |
| `orders/000000000012.claim` | who makes checkpoint 12, and on which ones it builds |
| `orders/000000000012/counter/0-totals` | a blob of it, of the operator `counter` |
| `orders/000000000012.manifest` | its manifest: now it is complete; or a seal: now it never will be |
| `orders/000000000012.pin-3fa9` | somebody reads it |
| `orders/000000000012.removal-81c0` | somebody removes it |
| `orders/backups/5b1c/counter/0/000001-…` | a backup of `counter[0]` that run 5b1c keeps in storage while it lasts |
| `orders/pushed/clicks/000000000007.batch` | what batch 7 that Spark has pushed to the source `clicks` consists of |
| `orders/pushed/clicks/3fa9-00000002/0-81c0` | a piece of batch 2 of Spark's stream 3fa9: rows of its partition 0 |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from seep.storage.keys import checked_key

_OWN = re.compile(r"(\d{12,})\.([a-z]+)(?:-[0-9a-f]+)?")
_BLOB = re.compile(r"(\d{12,})/[^/]+/.+")
_PUSHED_BATCH = re.compile(r"/(\d{12,})\.batch$")
_RUN = re.compile(r"runs/(\d{6,})")
_BACKUP = re.compile(r"backups/([^/]+)/.+")
_PUSHED = re.compile(r"pushed/[^/]+/.+")


class Part(StrEnum):
    """What there is of a checkpoint besides its blobs."""

    CLAIM = "claim"
    MANIFEST = "manifest"
    PIN = "pin"  #: any number, each with a token
    REMOVAL = "removal"  #: any number, each with a token


def part_key(query: str, id: int, part: Part, token: str = "") -> str:
    """
    >>> part_key("orders", 12, Part.MANIFEST), part_key("orders", 12, Part.PIN, "3fa9")
    ('orders/000000000012.manifest', 'orders/000000000012.pin-3fa9')
    """
    return checked_key(f"{parts_prefix(query, id)}{part}{'-' if token else ''}{token}")


def parts_prefix(query: str, id: int) -> str:
    """With what the keys of all parts of a checkpoint begin, and no others."""
    return f"{query}/{id:012d}."


def blob_key(query: str, id: int, operator: str, name: str) -> str:
    """
    >>> blob_key("orders", 12, "counter", "0-totals")
    'orders/000000000012/counter/0-totals'
    """
    return checked_key(f"{blobs_prefix(query, id)}{operator}/{name}")


def blobs_prefix(query: str, id: int) -> str:
    """With what the keys of all blobs of a checkpoint begin, and no others."""
    return f"{query}/{id:012d}/"


def run_key(query: str, generation: int) -> str:
    """
    >>> run_key("orders", 3)
    'orders/runs/000003'
    """
    return checked_key(f"{query}/runs/{generation:06d}")


def backups_prefix(query: str, run: str) -> str:
    """With what the keys of all backups of a run begin, without a slash at the end.

    >>> backups_prefix("orders", "5b1c")
    'orders/backups/5b1c'
    """
    return checked_key(f"{query}/backups/{run}")


def pushed_prefix(query: str, source: str) -> str:
    """With what the keys of all begin that Spark has pushed to a source."""
    return checked_key(f"{query}/pushed/{source}") + "/"


def pushed_batch_key(query: str, source: str, number: int) -> str:
    """
    >>> pushed_batch_key("orders", "clicks", 7)
    'orders/pushed/clicks/000000000007.batch'
    """
    return f"{pushed_prefix(query, source)}{number:012d}.batch"


def pushed_pieces_prefix(query: str, source: str, stream: str, id: int) -> str:
    """With what the keys of all pieces of a batch begin, those of attempts that do not count too."""
    return f"{pushed_prefix(query, source)}{stream}-{id:08d}/"


def pushed_batch_number(key: str) -> int | None:
    """
    >>> pushed_batch_number("orders/pushed/clicks/000000000007.batch")
    7
    """
    found = _PUSHED_BATCH.search(key)
    return int(found[1]) if found else None


def is_blob(key: str) -> bool:
    """Whether a key is one of a blob, so that its value never changes.

    >>> is_blob("orders/000000000012/counter/0-totals"), is_blob("orders/000000000012.manifest")
    (True, False)
    """
    return _BLOB.fullmatch(key.partition("/")[2]) is not None


@dataclass(slots=True)
class Shelf:
    """Keys of what there is of one checkpoint."""

    parts: dict[Part, list[str]] = field(default_factory=dict)
    blobs: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Somebody may still make it complete."""
        return Part.CLAIM in self.parts and Part.MANIFEST not in self.parts and Part.REMOVAL not in self.parts

    @property
    def settled(self) -> bool:
        """It is complete, or sealed, as its manifest tells. What has no claim counts for nothing: it came too late."""
        return Part.CLAIM in self.parts and Part.MANIFEST in self.parts

    @property
    def standing(self) -> bool:
        """It is settled, and nobody is about to remove it."""
        return self.settled and Part.REMOVAL not in self.parts


@dataclass(slots=True)
class Contents:
    """What there is of a query."""

    generations: list[int] = field(default_factory=list)
    shelves: dict[int, Shelf] = field(default_factory=dict)
    backups: dict[str, list[str]] = field(default_factory=dict)  #: by run
    pushed: list[str] = field(default_factory=list)  #: batches and pieces of all sources

    def shelf(self, id: int) -> Shelf:
        """That of a checkpoint; an empty one if there is nothing of it."""
        return self.shelves.get(id) or Shelf()


def contents(query: str, keys: Iterable[str]) -> Contents:
    """What the keys of a query say; those that are none of ours are left out.

    >>> found = contents("orders", ["orders/000000000012.claim", "orders/000000000012/counter/0-totals"])
    >>> found.shelf(12).open, found.shelf(12).blobs
    (True, ['orders/000000000012/counter/0-totals'])
    """
    found = Contents()
    for key in keys:
        rest = key.removeprefix(f"{query}/")
        if (part := _OWN.fullmatch(rest)) and part[2] in list(Part):
            found.shelves.setdefault(int(part[1]), Shelf()).parts.setdefault(Part(part[2]), []).append(key)
        elif blob := _BLOB.fullmatch(rest):
            found.shelves.setdefault(int(blob[1]), Shelf()).blobs.append(key)
        elif run := _RUN.fullmatch(rest):
            found.generations.append(int(run[1]))
        elif backup := _BACKUP.fullmatch(rest):
            found.backups.setdefault(backup[1], []).append(key)
        elif _PUSHED.fullmatch(rest):
            found.pushed.append(key)
    return found
