"""The hash of keys: golden values, one hash for equal keys in any form, and well mixed top bits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.hashing import NULL_HASH, absorb, hash_key, hash_keys
from primitives.slots import slots_of

# Never change a value here: slots in storage depend on it.
GOLDEN: dict[tuple[object, ...], int] = {
    (None,): 0,
    (0,): 0xE9E0033E3BADAF36,
    (1,): 0x820477342D9C40C0,
    (-1,): 0x29ABBD84E8A2A2C0,
    (2**63,): 0x092E87D01A3919A9,
    (1.5,): 0xE94085192682AC88,
    (math.nan,): 0xD90401C6FF966297,
    (-math.inf,): 0x6DB9812490B1DC3C,
    ("",): 0xA4093822299F31D0,
    ("a",): 0x98C2E59389D918D8,
    ("seep",): 0x0F150051C1C1307D,
    ("12345678",): 0xE52270E87C83FC2B,
    ("123456789",): 0x7B8D1914BFDCCF7A,
    ("naïve €",): 0xEBFE5C1F9EEA3267,
    (b"\x00",): 0x0433EBF21B5F33F3,
    (b"\x00\x00",): 0x092FB4774EA46236,
    (datetime(2024, 2, 29, 12, 30, 15, 250000),): 0x96310D1857CE36ED,
    (date(1969, 12, 31),): 0xC8E658D8F2850AE8,
    (None, None): 0xE436F2AD07BB59CC,
    (Decimal("0.10"),): 0xAE482CF5E848D15C,
    (Decimal("-12345678901234567890123.456"),): 0x417F8EE5DAC31029,
    ("a", 1): 0x9EB7E8934B167D90,
    (1, "a"): 0xF9A5280F50075111,
}

INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]

INSTANTS = st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1))
#: A type of column, and the values it may hold.
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*((0, 127) if kind.bit_width == 8 else (0, 2**15 - 1))) for kind in INTEGER_TYPES},
    **{kind: st.text(max_size=20) for kind in TEXT_TYPES},
    **{kind: st.binary(max_size=20) for kind in BINARY_TYPES},
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats() | st.integers(-(2**70), 2**70).map(float),
    pa.float32(): st.floats(width=32),
    pa.float16(): st.floats(width=16),
    pa.bool_(): st.booleans(),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.decimal128(38, 0): st.integers(1 - 10**38, 10**38 - 1).map(Decimal),
    pa.decimal128(38, 19): st.integers(1 - 10**37, 10**37 - 1).map(lambda number: Decimal(f"{number}E-18")),
    pa.decimal128(5, 2): st.decimals(-99, 99, places=1),
    pa.timestamp("s"): INSTANTS.map(lambda instant: instant.replace(microsecond=0)),
    pa.timestamp("us"): INSTANTS,
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.null(): st.none(),
}


def columns_of_values(kind: pa.DataType) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | COLUMNS[kind], max_size=12)


def expected(values: list[Any]) -> list[int]:
    return [hash_key(value) for value in values]


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_a_key_has_its_golden_hash(key: tuple[object, ...]) -> None:
    assert hash_key(*key) == GOLDEN[key]


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_a_row_of_columns_has_the_golden_hash_of_its_key(key: tuple[object, ...]) -> None:
    columns = [pa.array([value], pa.uint64() if value == 2**63 else None) for value in key]
    assert hash_keys(columns).tolist() == [GOLDEN[key]]


def test_the_mixer_is_the_published_one() -> None:
    golden_ratio = 0x9E3779B97F4A7C15
    stream = [absorb(0, golden_ratio * n & 2**64 - 1) for n in (1, 2, 3)]
    assert stream == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # SplitMix64 from seed 0


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_column_hashes_as_its_values(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(columns_of_values(kind))
    assert hash_keys([pa.array(values, kind)]).tolist() == expected(values)


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
@settings(deadline=None, max_examples=20)
@given(st.data())
def test_slices_and_chunks_hash_as_the_rows_they_show(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(columns_of_values(kind))
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, len(values))] * 2)))
    whole = pa.array(values, kind)
    chunked = pa.chunked_array([whole[first:second], whole[:first], whole[second:]], kind)
    shown = values[first:second] + values[:first] + values[second:]
    assert hash_keys([chunked]).tolist() == expected(shown)
    assert hash_keys([whole[first:second]]).tolist() == expected(values[first:second])


numbers = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 3) | st.floats()


@settings(deadline=None)
@given(numbers)
@example(2**53 + 1)
@example(2.0**63)
@example(-0.0)
@example(True)
def test_numbers_that_are_equal_in_python_hash_alike(number: float) -> None:
    others = [convert(number) for convert in (float, int, bool) if math.isfinite(number)]
    assert all(hash_key(other) == hash_key(number) for other in others if other == number and -(2**63) <= other < 2**64)


@pytest.mark.parametrize("kind", [*INTEGER_TYPES, pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_a_number_hashes_alike_in_every_width(kind: pa.DataType) -> None:
    assert hash_keys([pa.array([5, None, 0], kind)]).tolist() == expected([5, None, 0])


def test_the_largest_numbers_hash_alike_as_integer_and_float() -> None:
    powers = [2.0**62, 2.0**63, -(2.0**63), 2.0**63 + 2.0**20]
    assert hash_keys([pa.array(powers)]).tolist() == expected([int(power) for power in powers])


def test_all_nans_hash_alike_and_not_as_null() -> None:
    payloads = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000123], np.uint64).view(np.float64)
    assert hash_keys([payloads]).tolist() == [hash_key(math.nan)] * 3
    assert hash_key(math.nan) != NULL_HASH


@pytest.mark.parametrize("kind", [kind for kind in COLUMNS if kind != pa.null()], ids=str)
def test_a_null_hashes_to_slot_zero_in_every_type(kind: pa.DataType) -> None:
    hashes = hash_keys([pa.array([None, None], kind)])
    assert hashes.tolist() == [NULL_HASH] * 2
    assert slots_of(hashes, 20).tolist() == [0, 0]


def test_text_hashes_like_its_bytes() -> None:
    assert hash_key("naïve") == hash_key("naïve".encode())


def test_entries_of_a_dictionary_that_are_null_hash_as_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array([None, "x"]))
    assert hash_keys([column]).tolist() == expected([None, None, "x"])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_the_bytes_around_a_string_do_not_matter(rows: list[bytes]) -> None:
    text = b"".join(rows)
    offsets = np.cumsum([3, *map(len, rows)]).astype(np.int32)
    for around in (b"", b"\xff" * 20):  # without any, the last rows end where the buffer ends
        buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"\xff" * 3 + text + around)]
        column = pa.Array.from_buffers(pa.binary(), len(rows), buffers)
        assert hash_keys([column]).tolist() == expected(rows)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_timestamp_hashes_by_its_instant(unit: str, zone: str | None) -> None:
    instants = [datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    column = pa.array(instants, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone))
    assert hash_keys([column]).tolist() == expected(instants)


def test_a_datetime_without_zone_is_in_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert hash_key(datetime(2026, 1, 1)) == hash_key(datetime(2026, 1, 1, 9, tzinfo=tokyo))
    assert hash_key(datetime(2026, 1, 1)) == hash_key(date(2026, 1, 1))


def test_nanoseconds_of_a_timestamp_count() -> None:
    class Timestamp(datetime):
        nanosecond = 7  # as pandas has it

    column = np.array(["2026-01-01T00:00:00.000000007"], "datetime64[ns]")
    assert hash_keys([column]).tolist() == [hash_key(Timestamp(2026, 1, 1))] == [hash_key(column[0])]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (np.arange(5)[::2], [0, 2, 4]),
        (np.array([1, 256], ">i8"), [1, 256]),
        (np.array([1.5, -0.0], ">f4"), [1.5, 0]),
        (np.array([True, False]), [1, 0]),
        (np.array(["a", "bcd"]), ["a", "bcd"]),
        (np.array([b"a", b"bcd"]), ["a", "bcd"]),
        (np.array(["a", None], object), ["a", None]),
        (np.array(["2026-01-01", "NaT"], "datetime64[D]"), [date(2026, 1, 1), None]),
        (np.array(["2026-01-01T01", "NaT"], "datetime64[ms]"), [datetime(2026, 1, 1, 1), None]),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_numpy_columns_hash_by_value(column: np.ndarray[Any, Any], values: list[Any]) -> None:
    assert hash_keys([column]).tolist() == expected(values)


@pytest.mark.parametrize(
    "scalar", [np.int8(-3), np.uint64(2**63), np.float32(0.1), np.bool_(True), np.str_("ab")], ids=repr
)
def test_numpy_scalars_hash_as_python_values(scalar: np.generic) -> None:
    assert hash_key(scalar) == hash_key(scalar.item())


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=9), st.integers(-5, 5), st.floats()), max_size=8))
def test_several_columns_hash_as_the_key_they_form(rows: list[tuple[str | None, int, float]]) -> None:
    texts, integers, floats = zip(*rows, strict=True) if rows else ([], [], [])
    columns = [pa.array(texts, pa.string()), pa.array(integers, pa.int16()), pa.array(floats, pa.float64())]
    assert hash_keys(columns).tolist() == [hash_key(*row) for row in rows]


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20), st.data())
def test_characters_cannot_move_between_columns(text: str, data: st.DataObject) -> None:
    first, second = data.draw(st.tuples(*[st.integers(0, len(text))] * 2).filter(lambda cuts: cuts[0] != cuts[1]))
    assert hash_key(text[:first], text[first:]) != hash_key(text[:second], text[second:])


@settings(deadline=None)
@given(st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1] and pair[0] == pair[0]))
def test_columns_cannot_change_places(pair: tuple[float, float]) -> None:
    assert hash_key(*pair) != hash_key(*reversed(pair))


@given(st.integers(1 - 10**30, 10**30 - 1), st.integers(0, 8), st.integers(0, 8))
def test_a_decimal_hashes_by_its_value_whatever_its_scale(number: int, scale: int, zeros: int) -> None:
    value, same = Decimal(f"{number}E-{scale}"), Decimal(f"{number * 10**zeros}E-{scale + zeros}")
    arrays = [pa.array([value], pa.decimal128(38, scale)), pa.array([same], pa.decimal128(38, scale + zeros))]
    assert {hash_key(value), hash_key(same), *(int(hash_keys([array])[0]) for array in arrays)} == {hash_key(value)}
    if value == int(value) and -(2**63) <= value < 2**64:
        assert hash_key(value) == hash_key(int(value))


def test_a_key_of_one_column_is_not_one_of_two() -> None:
    assert len({hash_key("a"), hash_key("a", None), hash_key(None, "a"), hash_key("a", ""), hash_key("a", "a")}) == 5


@pytest.mark.parametrize(
    "bad",
    [1 + 2j, (1, 2), 2**64, -(2**63) - 1, object(), timedelta(1), Decimal("NaN"), Decimal("1E+39")],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_cannot_be_a_key_is_refused(bad: object) -> None:
    with pytest.raises(UserError, match="cannot be a key"):
        hash_key(bad)


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int8()), pa.decimal128(5, -2), pa.decimal256(5, 2), pa.struct([]), pa.duration("s")],
    ids=str,
)
def test_a_column_that_cannot_be_hashed_is_refused_even_without_rows(kind: pa.DataType) -> None:
    with pytest.raises(UserError, match=r"key column 1 has type .* cast it to"):
        hash_keys([pa.array([], pa.int8()), pa.array([], kind)])


@pytest.mark.parametrize(
    "column", [np.array(["a", 1], object), np.zeros((2, 2)), np.array([1j])], ids=["mixed", "2d", "complex"]
)
def test_a_numpy_column_that_arrow_does_not_take_is_refused(column: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UserError, match="key column 0"):
        hash_keys([column])


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(UserError, match=r"differ in length: they have \[2, 3\] rows"):
        hash_keys([np.arange(2), np.arange(3)])


@pytest.mark.parametrize("empty", [hash_key, lambda: hash_keys([])])
def test_a_key_without_columns_is_refused(empty: Callable[[], object]) -> None:
    with pytest.raises(UserError, match="at least one column"):
        empty()


# --- the quality of the hash ---

ROWS = 1 << 18
COUNT = np.arange(ROWS)
KEYS: dict[str, list[Any]] = {
    "sequential integers": [COUNT],
    "negative integers": [-COUNT],
    **{f"integers in steps of 2^{power}": [COUNT << power] for power in (4, 12, 32, 45)},
    "integers in steps of ten": [COUNT * 10],
    "doubles in steps of a tenth": [COUNT * 0.1 + 0.05],
    "decimal strings": [pa.array(COUNT).cast(pa.string())],
    "user names": [pa.array([f"user-{n}" for n in COUNT])],
    "two letters and a number": [pa.array([f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{n // 676}" for n in COUNT])],
    "long paths that end alike": [pa.array([f"/data/{n:08}/part/of/some/long/path.parquet" for n in COUNT])],
    "strings of zeros": [pa.array([b"\0" * n for n in range(5000)])],
    "a grid of integers": [COUNT % 512, COUNT // 512],
    "a grid of a string and an integer": [pa.array(COUNT % 512).cast(pa.string()), COUNT // 512],
    "seconds as microseconds": [pa.array(COUNT * 10**6, pa.timestamp("us"))],
    "days": [pa.array(COUNT.astype(np.int32), pa.date32())],
}


@pytest.mark.parametrize("slot_bits", [8, 12])
@pytest.mark.parametrize("name", KEYS)
def test_slots_fill_evenly(name: str, slot_bits: int) -> None:
    slots = slots_of(hash_keys(KEYS[name]), slot_bits)
    freedom = (1 << slot_bits) - 1
    share = len(slots) / (freedom + 1)
    chi_square = float(((np.bincount(slots, minlength=freedom + 1) - share) ** 2 / share).sum())
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("name", KEYS)
def test_different_keys_have_different_hashes(name: str) -> None:
    hashes = hash_keys(KEYS[name])
    assert len(np.unique(hashes)) == len(hashes)


@pytest.mark.parametrize("key", [b"12345678", b"some more bytes"], ids=str)
def test_each_bit_of_a_key_changes_each_bit_of_the_hash_half_of_the_time(key: bytes) -> None:
    draw = random.Random(1)
    keys = [draw.randbytes(len(key)) for _ in range(2000)]
    before = hash_keys([pa.array(keys)])
    for bit in range(8 * len(key)):
        flipped = [(int.from_bytes(k, "little") ^ 1 << bit).to_bytes(len(k), "little") for k in keys]
        changes = before ^ hash_keys([pa.array(flipped)])
        rates = np.unpackbits(changes.view(np.uint8)).reshape(len(keys), 64).mean(axis=0)
        assert 0.43 < rates.min() < rates.max() < 0.57
