"""The wire format: what goes in comes out, and what was not put in raises WireError."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections import OrderedDict
from dataclasses import replace
from itertools import zip_longest
from typing import Any
from unittest import mock

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint
from primitives.errors import UserError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk
from primitives.topology import Arrival, Assignment
from seep.channels.epoch_rows import RowsReader, RowsWriter
from seep.channels.letters import InstanceLeft, KnowPeers, LastWord, NodeFailed
from seep.channels.pieces import BYTES, Aligner, Assembly, cut
from seep.channels.wire import WireError, decode, encode, pack, unpack
from seep.channels.wire_types import TAG_OF, TYPES
from seep.protocol.courier import LetterFrame
from seep.protocol.messages import Data, StoreBackup, Tick, Trim
from seep.record.totals import HandedTotals, InstanceTotals, RunTotals, SourceTotals
from tests.cli.test_top import STATUS
from tests.runtime.values import (
    MESSAGES,
    RECEIVER,
    SENDER,
    anything,
    batches,
    comparable,
    frames,
    incarnations,
    letters,
    of,
)

BATCH = pa.record_batch({"k": np.arange(200_000), "v": np.arange(200_000)})


def buffer_addresses(batch: pa.RecordBatch) -> list[int]:
    return [buffer.address for column in batch.columns for buffer in column.buffers() if buffer]


def within(data: pa.Buffer, batch: pa.RecordBatch) -> bool:
    """Whether the batch is a view of the data."""
    return all(data.address <= address < data.address + data.size for address in buffer_addresses(batch))


# -- what goes in comes out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*MESSAGES, LetterFrame, Checkpoint, Chunk, FileChunk], ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_type_of_message_comes_back_as_it_went(kind: type, data: st.DataObject) -> None:
    value = data.draw(of(kind))
    assert comparable(decode(encode(value))) == comparable(value)


@given(st.lists(frames, max_size=3))
def test_frames_come_back_from_their_parts(value: list[LetterFrame]) -> None:
    assert comparable(unpack(pack(value))) == comparable(value)


@given(anything)
def test_plain_data_comes_back_with_the_types_it_had(value: Any) -> None:
    assert comparable(decode(encode(value))) == comparable(value)


@given(batches())
def test_batches_come_back_with_their_schema(batch: pa.RecordBatch) -> None:
    back = decode(encode({"rows": batch}))["rows"]
    assert back.schema.equals(batch.schema, check_metadata=True)
    assert back.equals(batch)


def test_a_status_comes_back_as_it_was() -> None:
    one = InstanceTotals(7, 6, 0.5, 1, 0)
    totals = RunTotals(
        {"counter": {3: one}}, {"counter": one}, {"lines": SourceTotals(9, 1)}, {"counter": HandedTotals(5)}
    )
    status = replace(STATUS, totals=totals)
    assert decode(encode({"status": status})) == {"status": status}


def test_assignments_come_back_at_any_number_of_slots() -> None:
    for owners in ([0], [0, 1], [5] * 4, [3, 0, 0, 1], list(range(4)) * 1024):
        assert decode(encode(Assignment(owners))) == Assignment(owners)


def test_an_assignment_that_is_in_use_comes_back_as_the_same_one() -> None:
    sent = encode([Assignment([0, 0, 1, 1]), Assignment([0, 1, 1, 1])])
    some, others = decode(sent), decode(sent)
    assert [one is other for one, other in zip(some, others, strict=True)] == [True, True]
    assert some[0] != some[1]


def test_numpy_scalars_and_other_mappings_and_enumerations_of_text_become_plain_values() -> None:
    value = [np.int32(3), np.float64(0.5), np.bool_(True), OrderedDict(a=1), Arrival.BACKUP]
    assert comparable(decode(encode(value))) == comparable([3, 0.5, True, {"a": 1}, "backup"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "it is a object"),
        ({"position": {1, 2}}, "it is a set"),
        ([lambda: None], "it is a function"),
        (2**64, "cannot be sent"),
    ],
)
def test_what_cannot_travel_is_an_error_of_the_user_that_says_what_can(value: Any, text: str) -> None:
    with pytest.raises(UserError, match=text):
        encode(value)


def test_a_list_that_holds_itself_cannot_travel() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UserError):
        encode(endless)


# -- without copies ----------------------------------------------------------------------------------------------------


def test_batches_are_views_of_what_arrived() -> None:
    parts = pack(BATCH)
    assert within(parts[1], unpack(parts))
    data = encode(BATCH)
    assert within(data, decode(data))


def test_chunks_are_views_of_what_arrived() -> None:
    chunk = Chunk("sums", 1, 3, SlotSet.full(3), ("k",), ("k",), BATCH, BATCH.select(["k"]).slice(0, 0))
    checkpoint = Checkpoint(InstanceId("count", 0), 1, 2, 3, None, SlotSet.full(3), (chunk,), (), 0)
    parts = pack(StoreBackup(checkpoint))
    assert within(parts[1], unpack(parts).checkpoint.state[0].rows)


def file_chunk() -> FileChunk:
    rows = BATCH.slice(0, 0)
    like = Chunk("sums", 1, 3, SlotSet.empty(), ("k",), ("k",), rows, rows.select(["k"]))
    contents = {"large.sst": pa.py_buffer(b"x" * 100_000), "CURRENT": pa.py_buffer(b"small"), "none": pa.py_buffer(b"")}
    sizes = {name: content.size for name, content in contents.items()}
    return FileChunk(like, SlotSet.full(3), np.arange(8), sizes, contents)


def test_files_are_sent_without_a_copy_and_are_views_of_what_arrived() -> None:
    chunk = file_chunk()
    parts = pack(chunk)
    assert chunk.contents["large.sst"].address in [part.address for part in parts]
    arrived = unpack(parts)
    assert arrived.contents["large.sst"].address in [part.address for part in parts]
    assert arrived.contents == chunk.contents


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (["like"], "a chunk of files is"),
        ([None, None, None, {1: 2}], "a chunk of files is"),
        ([None, None, None, {"a": "b"}], "a chunk of files is"),
        ([None, None, None, {"../large.sst": 5}, {}], "cannot be in a file '../large.sst'"),
        ([None, None, None, {"large.sst": 5}, {"large.sst": b"four"}], "file large.sst .* 4 bytes where 5 belong"),
        ([None, None, None, {}, {"large.sst": b"four"}], "file large.sst .* 4 bytes where None belong"),
        ([None, None, b"\0" * 56], "described in a way that makes no sense"),
        ([None, None, b"\xff" * 64], "described in a way that makes no sense"),
        ([None, None, b"\xff" * 63], "makes no sense"),
        ([None, SlotSet([8])], "no sense"),
        ([Chunk("sums", 1, 3, SlotSet.empty(), ("k",), ("k",), BATCH, BATCH.select(["k"]))], "in a way that makes no"),
    ],
)
def test_files_that_are_not_as_described_raise_wire_error(fields: list[Any], text: str) -> None:
    """As somebody would have them who forges messages."""
    kind = TYPES[TAG_OF[FileChunk]]
    right = kind.fields(file_chunk())
    forged = [given if given is not None else field for given, field in zip_longest(fields, right)]
    types = [kind._replace(fields=lambda _: forged) if each is kind else each for each in TYPES]
    with mock.patch("seep.channels.wire.TYPES", types):
        data = encode(file_chunk())
    with pytest.raises(WireError, match=text):
        decode(data)


def test_packing_copies_a_batch_once_and_not_through_python() -> None:
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    parts = pack(BATCH)
    _, python_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 1.01 * BATCH.nbytes
    assert python_peak < BATCH.nbytes / 10
    assert sum(part.size for part in parts) < 1.01 * BATCH.nbytes


def test_a_batch_at_an_odd_address_is_read_onto_an_even_one() -> None:
    data = encode(BATCH)
    shifted = pa.py_buffer(b"\0" + data.to_pybytes()).slice(1)
    assert all(address % 8 == 0 for address in buffer_addresses(decode(shifted)))


# -- what was not put in -----------------------------------------------------------------------------------------------

SAMPLES = [
    encode(value).to_pybytes()
    for value in (
        LetterFrame(3, 2, 1, Tick(SENDER, 7, False)),
        {"a": [1, (2, b"x")], 3: None},
        Data(SENDER, RECEIVER, 4, {0: pa.record_batch({"w": ["a", "b"]})}, 9),
    )
]


@given(st.binary(max_size=200))
def test_random_bytes_raise_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@given(st.sampled_from(SAMPLES), st.data())
def test_a_flipped_bit_raises_wire_error(sample: bytes, data: st.DataObject) -> None:
    """All but those in the padding between buffers, which nobody reads."""
    bit = data.draw(st.integers(0, 8 * len(sample) - 1))
    damaged = bytearray(sample)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        value = decode(bytes(damaged))
    except WireError:
        return
    assert sample[bit // 8] == 0
    assert comparable(value) == comparable(decode(sample))


@given(st.sampled_from(SAMPLES), st.data())
def test_a_message_that_is_cut_off_or_goes_on_raises_wire_error(sample: bytes, data: st.DataObject) -> None:
    with pytest.raises(WireError):
        decode(sample[: data.draw(st.integers(0, len(sample) - 1))])
    with pytest.raises(WireError):
        decode(sample + data.draw(st.binary(min_size=1, max_size=80)))


def forged(body: bytes, count: int = 0, length: int | None = None) -> bytes:
    """A head with a checksum that is right, whatever it holds."""
    checked = struct.pack("<IQ", count, len(body) if length is None else length) + body
    return b"SPW1" + struct.pack("<I", zlib.crc32(checked)) + checked


def tagged(code: int, *fields: Any) -> bytes:
    return bytes(msgpack.packb([msgpack.ExtType(code, b""), *fields]))


def test_a_forged_head_is_read_like_any_other() -> None:
    assert decode(forged(msgpack.packb([1, 2]))) == [1, 2]


#: For these, so many empty mappings are content that makes sense.
MADE_OF_MAPPINGS = {(KnowPeers, 1), (NodeFailed, 2), (InstanceLeft, 1), (LastWord, 1)}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb(1) + b"x",
        b"\xdd\xff\xff\xff\xff",  # a list of 4 billion values that are not there
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000 + b"\x01",
        b"\xdd\x00\x00\xff\xff" * 10_000,
        msgpack.packb(msgpack.ExtType(0, b"")),
        msgpack.packb({"k": msgpack.ExtType(0, b"")}),
        msgpack.packb([1, msgpack.ExtType(0, b"")]),
        msgpack.packb([msgpack.ExtType(0, b"content")]),
        msgpack.packb({1: 2}).replace(b"\x01", b"\x91\x01"),  # a list as a key
        tagged(127),
        *(
            tagged(code, *[{}] * count)
            for code in range(2, len(TYPES))
            for count in (1, 2, 3, 4)
            if (TYPES[code].type, count) not in MADE_OF_MAPPINGS
        ),
        *(tagged(code, *[10**9] * count) for code in range(2, 9) for count in (0, 1, 2, 3)),
    ],
    ids=lambda body: body[:12].hex(),
)
def test_senseless_content_raises_wire_error_without_great_cost(body: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(WireError):
        decode(forged(body))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize(
    "data", [forged(b"\xc0", count=2**32 - 1), forged(b"\xc0", length=2**63), forged(b"\xc0", length=2**64 - 1)]
)
def test_announced_sizes_that_are_not_there_raise_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


def test_a_field_of_another_type_raises_wire_error_that_names_it() -> None:
    with pytest.raises(WireError, match=r"Tick\.epoch cannot be a str"):
        decode(encode(Tick(SENDER, "seven", False)))  # type: ignore[arg-type]
    with pytest.raises(WireError, match=r"Trim\.instance"):
        decode(encode(Trim((("count", 0), 1), 3)))  # type: ignore[arg-type]


def test_parts_of_another_message_raise_wire_error() -> None:
    head, body = pack(BATCH)
    for parts in ([head], [head, body, body], [head, body.slice(8)], [head, pack(BATCH.slice(1))[1]]):
        with pytest.raises(WireError):
            unpack(parts)


# -- in pieces ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=60_000), min_size=1, max_size=4), st.integers(1, 50_000))
def test_messages_of_any_size_come_together_from_their_pieces(contents: list[bytes], cut_at: int) -> None:
    parts = [pa.py_buffer(content) for content in contents]
    assembly = Assembly()
    for _ in range(2):  # one after the other on the same stream
        *earlier, last = (
            assembly.add(pa.py_buffer(piece.metadata), piece.body)
            for piece in cut(parts, Aligner(BYTES), max(cut_at, 5_000))
        )
        assert earlier == [None] * len(earlier)
        assert last is not None
        if sum(map(len, contents)) > 32 << 10:
            assert [part.to_pybytes() for part in last] == contents


def test_a_message_over_the_limit_is_refused_before_it_is_complete() -> None:
    pieces = list(cut([pa.py_buffer(b"x" * 100_000)], Aligner(BYTES), 10_000))
    assembly = Assembly(limit=25_000)
    assert [assembly.add(pa.py_buffer(p.metadata), p.body) for p in pieces[:2]] == [None, None]
    with pytest.raises(WireError, match="longer than 25000"):
        assembly.add(pa.py_buffer(pieces[2].metadata), pieces[2].body)


@pytest.mark.parametrize("metadata", [b"", b"\x09", b"\x00" * 32, b"\x02", b"\x04"])
def test_a_piece_that_is_out_of_place_raises_wire_error(metadata: bytes) -> None:
    with pytest.raises(WireError):
        Assembly().add(pa.py_buffer(metadata), None)


# -- as rows -----------------------------------------------------------------------------------------------------------

_SCHEMAS = {
    0: pa.schema({"n": pa.int64(), "w": pa.string()}),
    2: pa.schema({"d": pa.dictionary(pa.int8(), pa.string())}),
}


@st.composite
def rows_of(draw: st.DrawFn, schema: pa.Schema) -> pa.RecordBatch:
    count = draw(st.integers(1, 50))
    columns = [
        pa.array([None if i % 7 == 3 else str(i % 5) for i in range(count)]).cast(field.type) for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


@given(st.data(), incarnations, incarnations, st.sampled_from([(0,), (2,), (0, 2)]), st.sampled_from([64, 1 << 20]))
def test_data_comes_back_as_it_went_from_any_ports(
    data: st.DataObject, sender: Any, receiver: Any, ports: tuple[int, ...], most: int
) -> None:
    schemas = {port: _SCHEMAS[port] for port in ports}
    filled = data.draw(st.sets(st.sampled_from(ports)))
    sent = {port: data.draw(rows_of(schemas[port])) for port in filled}
    message = Data(
        sender, receiver, data.draw(st.integers(0, 2**62)), sent, data.draw(st.integers(-(2**63), 2**63 - 1)), 0.5
    )
    reader = RowsReader(sender, receiver, ports)
    *earlier, last = (
        reader.add(pa.py_buffer(piece.metadata), piece.body) for piece in RowsWriter(schemas, most).pieces(message)
    )
    assert earlier == [None] * len(earlier)
    assert last is not None
    assert {port: rows.to_pylist() for port, rows in last.batches.items()} == {
        port: rows.to_pylist() for port, rows in sent.items()
    }
    assert last._replace(batches={}) == message._replace(batches={})
    assert all(rows.schema.equals(schemas[port]) for port, rows in last.batches.items())


@given(letters)
def test_no_letter_takes_another_as_its_own(value: Any) -> None:
    """Tags do not meet: each type has its own."""
    assert type(decode(encode(value))) is type(value)
