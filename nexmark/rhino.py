"""Writes Rhino's binary records: big-endian, of a fixed size for each kind, in blocks (section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats.files import whole_file
from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.generator.model import Ints
from primitives.errors import EnvironmentFault
from primitives.state.columnar.fixed import to_numbers

BLOCK = 8_192

PERSON = np.dtype(
    [
        ("id", ">i8"),
        *((name, "S32") for name in ("first_name", "last_name", "mail_host", "city", "country")),
        ("card", ">i8", (2,)),
        ("numbers", ">i4", (3,)),
        ("flag", ">i2"),
        ("created", ">i8"),
    ]
)
AUCTION = np.dtype(
    [
        ("id", ">i8"),
        ("seller", ">i8"),
        ("category", "i1"),
        ("item", ">i4"),
        ("start", ">i8"),
        ("end", ">i8"),
        ("price", ">i4"),
        ("name", "S20"),
        ("description", "S200"),
        ("created", ">i8"),
    ]
)
BID = np.dtype([("bidder", ">i8"), ("auction", ">i8"), ("price", ">f8"), ("created", ">i8")])
_HEAD = np.dtype([("tag", ">u4"), ("count", ">i4"), ("to_come", ">i8")])

#: The highest price; the prices of bids are stored as fractions of it.
_HIGHEST = 1e8


class RecordLayout(NamedTuple):
    """The format of a kind's binary records."""

    file: str
    tag: int
    record: np.dtype[np.void]

    @property
    def of_block(self) -> int:
        """Number of records in a block."""
        return (BLOCK - _HEAD.itemsize) // self.record.itemsize


LAYOUTS = {
    EventKind.PERSON: RecordLayout("persons.bin", 0x30011991, PERSON),
    EventKind.AUCTION: RecordLayout("auctions.bin", 0x30061992, AUCTION),
    EventKind.BID: RecordLayout("bids.bin", 0xDEEDBEAF, BID),
}


def write_records(
    settings: EventSettings, count: int, folder: Path, reach: Callable[[int, int], None] = lambda _, __: None
) -> None:
    """Writes records of this many events, each kind to its own file; tells `reach` how many of them are written."""
    events, done = EventGenerator(settings), 0
    numbers = events.at(np.arange(count))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, layout in LAYOUTS.items():
            for written in _write(events, kind, numbers[events.where(numbers, [kind])], folder / layout.file):
                done += written
                reach(done, count)
    except OSError as reason:
        raise EnvironmentFault(f"{folder} cannot be written to: {reason}") from reason


def _write(events: EventGenerator, kind: EventKind, numbers: Ints, path: Path) -> Iterator[int]:
    """Writes the records of a kind in blocks; yields the number of those in each."""
    layout = LAYOUTS[kind]
    with whole_file(path) as partial, partial.open("wb") as file:
        for first in range(0, len(numbers), layout.of_block):
            chosen = numbers[first : first + layout.of_block]
            file.write(block(layout, records(events, kind, chosen), len(numbers) - first - len(chosen)))
            yield len(chosen)


def block(layout: RecordLayout, rows: NDArray[np.void], to_come: int) -> bytes:
    """Returns a block: its head, its records, and padding up to 8192 bytes."""
    head = np.array([(layout.tag, len(rows), to_come)], _HEAD)
    return (head.tobytes() + rows.tobytes()).ljust(BLOCK, b"\0")


def records(events: EventGenerator, kind: EventKind, numbers: Ints) -> NDArray[np.void]:
    """Returns the records of events of one kind."""
    out = np.zeros(len(numbers), LAYOUTS[kind].record)
    {EventKind.PERSON: _persons, EventKind.AUCTION: _auctions, EventKind.BID: _bids}[kind](events, numbers, out)
    out["created"] = events.times(numbers)
    return out


def _persons(events: EventGenerator, numbers: Ints, out: NDArray[np.void]) -> None:
    made = events.columns(EventKind.PERSON, numbers, ["id", "name", "email", "card", "city", "state"])
    out["id"] = to_numbers(made["id"])
    out["first_name"], out["last_name"] = (_parts(made["name"], " ", at) for at in (0, 1))
    out["mail_host"], out["country"] = _parts(made["email"], "@", 1), _bytes(made["state"])
    out["city"] = _bytes(made["city"])
    digits = pa.compute.replace_substring(made["card"], " ", "")
    for at in (0, 1):
        out["card"][:, at] = to_numbers(pa.compute.utf8_slice_codeunits(digits, 8 * at, 8 * at + 8).cast(pa.int64()))


def _auctions(events: EventGenerator, numbers: Ints, out: NDArray[np.void]) -> None:
    names = ["id", "seller", "category", "item", "desc", "reserve", "date_time", "expires"]
    made = events.columns(EventKind.AUCTION, numbers, names)
    out["item"], out["name"], out["description"] = out["id"] % (1 << 31), _bytes(made["item"]), _bytes(made["desc"])
    for name, there in {"id": "id", "seller": "seller", "category": "category", "price": "reserve"}.items():
        out[name] = to_numbers(made[there])
    out["start"], out["end"] = to_numbers(made["date_time"]), to_numbers(made["expires"])


def _bids(events: EventGenerator, numbers: Ints, out: NDArray[np.void]) -> None:
    made = events.columns(EventKind.BID, numbers, ["bidder", "auction", "price"])
    out["bidder"], out["auction"] = to_numbers(made["bidder"]), to_numbers(made["auction"])
    out["price"] = to_numbers(made["price"]) / (_HIGHEST + 1)


def _bytes(column: pa.Array) -> NDArray[np.bytes_]:
    return np.array(column.fill_null("").cast(pa.binary()).to_pylist() or [b""], np.bytes_)[: len(column)]


def _parts(column: pa.Array, separator: str, part: int) -> NDArray[np.bytes_]:
    pieces = pa.compute.split_pattern(column.fill_null(separator), separator)
    return _bytes(pa.compute.list_element(pieces, part))
