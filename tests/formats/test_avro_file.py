"""The framing of Avro files is what fastavro writes and reads, and what is damaged does not pass."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.avro_file import (
    Compression,
    Cursor,
    encode_bytes,
    encode_long,
    frame_block,
    new_header,
    read_block,
    read_header,
    write_header,
)
from primitives.errors import Damaged

SCHEMA = {"type": "record", "name": "Word", "fields": [{"name": "word", "type": "bytes"}]}

longs = st.integers(-(2**63), 2**63 - 1)
words = st.lists(st.binary(max_size=200), max_size=5)
codecs = st.sampled_from(Compression)


def file_of(codec: Compression, blocks: list[list[bytes]]) -> bytes:
    header = new_header(SCHEMA, codec)
    framed = [part for block in blocks for part in frame_block(header, len(block), [*map(encode_bytes, block)])]
    return b"".join([write_header(header), *framed])


@given(longs)
def test_integers_are_what_fastavro_writes(number: int) -> None:
    expected = BytesIO()
    fastavro.schemaless_writer(expected, {"type": "long"}, number)
    assert encode_long(number) == expected.getvalue()
    assert Cursor(encode_long(number)).long() == number


@given(st.lists(longs, max_size=5), st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=3))
def test_arrays_and_maps_of_fastavro_are_read(numbers: list[int], pairs: dict[str, bytes]) -> None:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, {"type": "array", "items": "long"}, numbers)
    fastavro.schemaless_writer(stream, {"type": "map", "values": "bytes"}, pairs)
    cursor = Cursor(stream.getvalue())
    assert (cursor.longs(), cursor.mapping(), cursor.at_end) == (numbers, pairs, True)


def test_an_array_whose_blocks_tell_their_size_is_read() -> None:
    block = encode_long(5) + encode_long(6)
    assert Cursor(encode_long(-2) + encode_long(len(block)) + block + encode_long(0)).longs() == [5, 6]


@given(st.sampled_from([Compression.NONE, Compression.DEFLATE]), st.lists(words, max_size=3))
def test_files_are_read_by_fastavro(codec: Compression, blocks: list[list[bytes]]) -> None:
    read = fastavro.reader(BytesIO(file_of(codec, blocks)))
    assert [record["word"] for record in read] == [word for block in blocks for word in block]


@given(st.sampled_from(["null", "deflate"]), words)
def test_files_of_fastavro_are_read(codec: str, content: list[bytes]) -> None:
    stream = BytesIO()
    fastavro.writer(stream, SCHEMA, [{"word": word} for word in content], codec=codec)
    assert list(_words_in(stream.getvalue())) == content


@given(codecs, st.lists(words, max_size=3))
def test_files_are_read_back(codec: Compression, blocks: list[list[bytes]]) -> None:
    assert list(_words_in(file_of(codec, blocks))) == [word for block in blocks for word in block]


def _words_in(data: bytes) -> Any:
    cursor = Cursor(data)
    header = read_header(cursor)
    while not cursor.at_end:
        count, body = read_block(header, cursor)
        inside = Cursor(body)
        yield from [bytes(inside.bytes()) for _ in range(count)]
        inside.finish()


@given(codecs, st.binary(max_size=300))
def test_a_codec_takes_back_what_it_did(codec: Compression, data: bytes) -> None:
    assert bytes(codec.decompress(codec.compress(data))) == data


@pytest.mark.parametrize("codec", [Compression.DEFLATE, Compression.ZSTD])
def test_what_is_not_compressed_data_is_refused(codec: Compression) -> None:
    with pytest.raises(Damaged, match=f"no {codec} data"):
        codec.decompress(b"\xffplain text")


@pytest.mark.parametrize("codec", Compression)
def test_a_file_that_ends_within_a_block_is_refused(codec: Compression) -> None:
    whole = file_of(codec, [[b"to"], [b"be"]])
    complete = {len(file_of(codec, [])), len(file_of(codec, [[b"to"]]))}
    for end in set(range(len(whole))) - complete:
        with pytest.raises(Damaged):
            list(_words_in(whole[:end]))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"PAR1", "does not begin as an Avro file does"),
        (b"Obj\x01" + encode_long(0), "Avro header cannot be read"),
        (
            b"Obj\x01\x04" + b"".join(map(encode_bytes, [b"avro.codec", b"lzma", b"avro.schema", b"{}"])) + b"\0",
            "compressed by 'lzma'; known are null, deflate, zstandard",
        ),
    ],
)
def test_a_header_that_is_none_is_refused_in_words(data: bytes, problem: str) -> None:
    with pytest.raises(Damaged, match=problem):
        read_header(Cursor(data))


def test_a_number_without_an_end_is_refused() -> None:
    with pytest.raises(Damaged, match="no integer"):
        Cursor(b"\xff" * 20).long()


def test_a_negative_number_of_things_is_refused() -> None:
    with pytest.raises(Damaged, match="-1 of something"):
        Cursor(encode_long(-1)).count()
