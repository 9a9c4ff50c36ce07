"""Reads and writes Avro object container files; large values pass through without a copy."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from primitives.errors import Damaged as Damaged

Piece: TypeAlias = bytes | memoryview

_MAGIC = b"Obj\x01"
_SYNC = 16  # length of the marker that ends the header and each block


class Compression(StrEnum):
    """The compression of blocks."""

    NONE = "none"
    DEFLATE = "deflate"
    ZSTD = "zstd"

    def compress(self, data: Piece) -> Piece:
        """Returns the data in its stored form."""
        return _METHODS[self].compress(data)

    def decompress(self, data: Piece) -> Piece:
        """Returns the original data, whichever program compressed it."""
        try:
            return _METHODS[self].decompress(data)
        except (OSError, zlib.error, pa.ArrowException) as reason:
            raise Damaged(f"{len(data)} bytes are no {self} data: {reason}") from reason


class _Method(NamedTuple):
    avro: str  #: its name in Avro
    compress: Callable[[Piece], Piece]
    decompress: Callable[[Piece], Piece]


def _deflate(data: Piece) -> bytes:
    raw = zlib.compressobj(level=1, wbits=-zlib.MAX_WBITS)
    return raw.compress(data) + raw.flush()


def _inflate(data: Piece) -> bytes:
    return zlib.decompress(data, wbits=-zlib.MAX_WBITS)


def _to_zstd(data: Piece) -> bytes:
    compressed: bytes = pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
    return compressed


def _from_zstd(data: Piece) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:  # which works without the size
        read: bytes = stream.read()
    return read


def _same(data: Piece) -> Piece:
    return data


_METHODS = {
    Compression.NONE: _Method("null", _same, _same),
    Compression.DEFLATE: _Method("deflate", _deflate, _inflate),
    Compression.ZSTD: _Method("zstandard", _to_zstd, _from_zstd),
}
_CODECS = {method.avro: codec for codec, method in _METHODS.items()}


# --- Avro's encoding --------------------------------------------------------------------------------------------------


def encode_long(number: int) -> bytes:
    """Returns a 64-bit integer in Avro's encoding.

    >>> encode_long(-65).hex(), Cursor(encode_long(-65)).long()
    ('8101', -65)
    """
    word = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while word > 0x7F:
        encoded.append(word & 0x7F | 0x80)
        word >>= 7
    encoded.append(word)
    return bytes(encoded)


def encode_bytes(data: Piece) -> bytes:
    """Returns bytes in Avro's encoding: their number, followed by the bytes."""
    return encode_long(len(data)) + data


class Cursor:
    """Reads Avro's encoding from a place in some bytes; returns views of them."""

    def __init__(self, data: Piece) -> None:
        self._data = memoryview(data)
        self.at = 0

    def long(self) -> int:
        """Reads an integer."""
        word = shift = 0
        while True:
            byte = self.take(1)[0]
            word |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (word >> 1) ^ -(word & 1)
            shift += 7
            if shift > 63:
                raise Damaged(f"there is no integer at byte {self.at}")

    def count(self) -> int:
        """Reads an integer that counts something."""
        number = self.long()
        if number < 0:
            raise Damaged(f"there are {number} of something at byte {self.at}")
        return number

    def bytes(self) -> memoryview:
        """Reads bytes, whose number comes first."""
        return self.take(self.count())

    def take(self, length: int) -> memoryview:
        """Reads this many bytes."""
        end = self.at + length
        if end > len(self._data):
            raise Damaged(f"it ends at byte {len(self._data)}, and should go on to byte {end}")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def longs(self) -> list[int]:
        """Reads an array of integers."""
        return self._series(self.long)

    def mapping(self) -> dict[str, memoryview]:
        """Reads a map of bytes."""
        return dict(self._series(lambda: (str(self.bytes(), "utf-8"), self.bytes())))

    def _series(self, item: Callable[[], Any]) -> list[Any]:
        """Reads a series of items in blocks; a negative count is followed by the size of its block in bytes."""
        items: list[Any] = []
        while count := self.long():
            if count < 0:
                self.long()
            items += [item() for _ in range(abs(count))]
        return items

    @property
    def at_end(self) -> bool:
        return self.at == len(self._data)

    def finish(self) -> None:
        """Raises an error unless everything was read."""
        if not self.at_end:
            raise Damaged(f"{len(self._data) - self.at} bytes too many at byte {self.at}")


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file."""

    schema: Mapping[str, Any]
    codec: Compression
    sync: bytes  #: the marker between blocks


def new_header(schema: Mapping[str, Any], codec: Compression) -> Header:
    """Returns the header of a new file.

    Its marker is computed from the schema, so that equal content makes equal files.
    """
    return Header(schema, codec, hashlib.blake2b(_metadata(schema, codec), digest_size=_SYNC).digest())


def write_header(header: Header) -> bytes:
    """Returns the bytes of a header."""
    return _MAGIC + _metadata(header.schema, header.codec) + header.sync


def _metadata(schema: Mapping[str, Any], codec: Compression) -> bytes:
    pairs = {"avro.codec": _METHODS[codec].avro, "avro.schema": json.dumps(schema, separators=(",", ":"))}
    texts = [encode_bytes(text.encode()) for pair in pairs.items() for text in pair]
    return encode_long(len(pairs)) + b"".join(texts) + encode_long(0)


def read_header(cursor: Cursor) -> Header:
    """Reads the header at the cursor, whichever program wrote it."""
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise Damaged("it does not begin as an Avro file does")
    try:
        metadata = cursor.mapping()
        schema = json.loads(bytes(metadata["avro.schema"]))
        codec = str(metadata.get("avro.codec", b"null"), "utf-8")
    except (ValueError, KeyError) as reason:
        raise Damaged(f"its Avro header cannot be read: {reason!r}") from reason
    if codec not in _CODECS:
        raise Damaged(f"its blocks are compressed by {codec!r}; known are {', '.join(_CODECS)}")
    return Header(schema, _CODECS[codec], bytes(cursor.take(_SYNC)))


def frame_block(header: Header, records: int, parts: Sequence[Piece]) -> list[Piece]:
    """Returns a block of encoded records, given in parts; without compression the parts are not copied."""
    if header.codec is not Compression.NONE:
        parts = [header.codec.compress(b"".join(parts))]
    size = sum(len(part) for part in parts)
    return [encode_long(records) + encode_long(size), *parts, header.sync]


def read_block(header: Header, cursor: Cursor) -> tuple[int, Piece]:
    """Reads the block at the cursor; returns the number of its records, and their encoding."""
    records, body = cursor.count(), cursor.bytes()
    if cursor.take(_SYNC) != header.sync:
        raise Damaged(f"a block does not end at byte {cursor.at}")
    return records, header.codec.decompress(body)
