"""The reference model: numbers by the formulas of the specification, shares by chance, and equal events anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexmark.generator import BidSkew, EventGenerator, EventKind, EventSettings, Pattern
from nexmark.log import log
from nexmark.rhino import BLOCK, LAYOUTS, write_records
from nexmark.schema import LOG
from primitives.errors import UserError
from primitives.hashing import hash_key
from primitives.slots import contiguous_assignment, slot_of
from seep.rows.rate import Profile

PLAIN = {"text": False, "filler": False}
KINDS = {0: "p_id", 1: "a_id", 2: "b_auction"}


def table(count: int, **options: object) -> pa.Table:
    return pa.Table.from_batches(log(EventSettings(**{**PLAIN, **options}), count), LOG)  # type: ignore[arg-type]


def newest(number: int) -> tuple[int, int]:
    """The newest person and auction of a 1:3:46 log, counted from 0."""
    turn, place = divmod(number, 50)
    auction = (turn - 1) * 3 + 2 if place < 1 else turn * 3 + (2 if place >= 4 else place - 1)
    return turn, auction


def test_kinds_ids_and_times_are_by_the_formulas() -> None:
    for row in table(2_000, rate=3_000).to_pylist():
        number = row["event_id"]
        person, auction = newest(number)
        assert row["kind"] == (0 if number % 50 < 1 else 1 if number % 50 < 4 else 2)
        assert row["date_time"] == 1_436_918_400_000 + number * 1_000 // 3_000
        assert row["p_id"] == (1_000 + person if row["kind"] == 0 else None)
        assert row["a_id"] == (1_000 + auction if row["kind"] == 1 else None)
        assert (row["b_price"] is None) == (row["kind"] != 2)


def test_what_is_referred_to_is_hot_or_near() -> None:
    hot: Counter[tuple[str, bool]] = Counter()
    for row in table(60_000).to_pylist():
        person, auction = newest(row["event_id"])
        if row["kind"] == 0:
            continue
        who, shift = (row["a_seller"], 0) if row["kind"] == 1 else (row["b_bidder"], 1)
        is_hot = who == 1_000 + person // 100 * 100 + shift
        assert is_hot or max(person - 999, 0) <= who - 1_000 <= person + 10
        hot["person", is_hot] += 1
        if row["kind"] == 2:
            is_hot = row["b_auction"] == 1_000 + auction // 100 * 100
            assert is_hot or max(auction - 100, 0) <= row["b_auction"] - 1_000 <= auction + 10
            hot["auction", is_hot] += 1
    assert hot["person", True] / (hot["person", True] + hot["person", False]) == pytest.approx(0.75, abs=0.02)
    assert hot["auction", True] / (hot["auction", True] + hot["auction", False]) == pytest.approx(0.5, abs=0.02)


def test_prices_reserves_and_ends_of_auctions_are_in_range() -> None:
    rows = table(60_000)
    prices = rows["b_price"].drop_null().to_numpy()
    assert 100 <= prices.min() < 110
    assert 9e7 < prices.max() <= 1e8
    assert np.median(prices) == pytest.approx(100 * 10**3, rel=0.1)
    auctions = rows.filter(pc.equal(rows["kind"], 1))
    lengths = pc.subtract(auctions["a_expires"], auctions["date_time"]).to_numpy()
    ahead = 100 * 50 // 3 * 1_000 // 10_000  # milliseconds in which 100 auctions begin
    assert (lengths.min(), lengths.max()) == (1, pytest.approx(2 * ahead, abs=2))
    assert lengths.mean() == pytest.approx(ahead, rel=0.05)
    assert pc.min(pc.subtract(auctions["a_reserve"], auctions["a_initial_bid"])).as_py() >= 100
    assert set(auctions["a_category"].to_pylist()) == set(range(10, 15))


@settings(max_examples=20)
@given(first=st.integers(0, 10**9), count=st.integers(1, 300), cut=st.integers(0, 300), seed=st.integers(0, 2**40))
def test_an_event_is_the_same_whatever_it_is_made_with(first: int, count: int, cut: int, seed: int) -> None:
    events, cut = EventGenerator(EventSettings(seed=seed)), min(cut, count)
    numbers = np.arange(first, first + count)
    for kind, names in (
        (EventKind.PERSON, ["id", "name", "email", "card", "city", "extra"]),
        (EventKind.BID, ["price", "extra"]),
    ):
        mine = events.numbers(numbers, [kind])
        whole = events.columns(kind, mine, names)
        parts = [events.columns(kind, part, names) for part in (mine[:cut], mine[cut:])]
        assert all(pa.concat_arrays([part[name] for part in parts]).equals(whole[name]) for name in names)


def test_other_seeds_make_other_events() -> None:
    assert table(100, seed=1)["b_price"] != table(100, seed=2)["b_price"]


@pytest.mark.parametrize(
    "options", [{"group": 100}, {"group": 10}, {"held_back": 0.1}, {"group": 64, "held_back": 0.3}]
)
def test_the_watermark_is_the_best_there_is_and_no_event_is_lost(options: dict[str, object]) -> None:
    rows, ordered = table(7_000, rate=1_000, **options), table(7_000, rate=1_000)
    times = rows["date_time"].to_numpy()
    assert rows["watermark"].to_pylist() == np.minimum.accumulate(times[::-1])[::-1].tolist()
    assert (np.diff(rows["arrival_time"].to_numpy()) >= 0).all()
    assert (np.diff(times) < 0).any()
    names = [name for name in LOG.names if name not in ("seq", "arrival_time", "watermark")]
    assert rows.sort_by("event_id").select(names).equals(ordered.select(names)) or options.get("group") == 64


def test_a_profile_changes_when_events_are_due_and_dilation_their_own_time() -> None:
    steep = table(10_000, rate=1_000, profile=Profile.SAWTOOTH, period=10.0)
    gaps = np.diff(steep["arrival_time"].to_numpy())
    assert gaps[:50].mean() > 5 * gaps[5_000:5_050].mean()
    dilated = table(2_000, rate=1_000, dilation=79)
    assert dilated["arrival_time"][-1].as_py() - dilated["arrival_time"][0].as_py() == 1_999
    assert dilated["date_time"][-1].as_py() - dilated["date_time"][0].as_py() == 1_999 * 79


def test_records_have_their_sizes_on_the_average() -> None:
    rows = table(20_000, text=True, filler=True)
    strings = {0: ("p_name", "p_email", "p_card", "p_city", "p_state"), 1: ("a_item", "a_desc"), 2: ()}
    for kind, (fixed, size) in {0: (8, 200), 1: (48, 500), 2: (32, 100)}.items():
        mine = rows.filter(pc.equal(rows["kind"], kind))
        total = sum(pc.sum(pc.binary_length(mine[name])).as_py() for name in (*strings[kind], "extra"))
        assert fixed + total / len(mine) == pytest.approx(size, rel=0.02)
    assert {len(card) for card in rows["p_card"].drop_null().to_pylist()} == {19}
    assert pc.all(pc.equal(rows["a_item"], pc.utf8_trim_whitespace(rows["a_item"]))).as_py()


# --- skew -------------------------------------------------------------------------------------------------------------


def owner(auction: int, instances: int) -> int:
    return int(contiguous_assignment(instances, 8)[slot_of(hash_key(auction), 8)])


def test_skewed_bids_go_to_the_auctions_of_the_hot_instances_and_all_else_stays() -> None:
    plain, skewed = table(20_000), table(20_000, skew=BidSkew(share=0.6, hot=1, instances=8))
    others = [name for name in LOG.names if name != "b_auction"]
    assert skewed.select(others).equals(plain.select(others))
    pairs = list(zip(plain["b_auction"].to_pylist(), skewed["b_auction"].to_pylist(), strict=True))
    moved = [(a, b) for a, b in pairs if a != b]
    assert all(b < a and owner(b, 8) == 0 and all(owner(c, 8) for c in range(b + 1, a + 1)) for a, b in moved)
    share = np.mean([owner(b, 8) == 0 for _, b in pairs if b is not None])
    assert share == pytest.approx(0.6 + 0.4 / 8, abs=0.08)


def test_skew_goes_to_keys_or_residues_too() -> None:
    keys = table(10_000, skew=BidSkew(share=0.5, keys=(7, 8)))["b_auction"].drop_null().to_pylist()
    assert [keys.count(key) / len(keys) for key in (7, 8)] == pytest.approx([0.25, 0.25], abs=0.02)
    even = table(10_000, skew=BidSkew(share=1.0, modulus=10, residues=(3,)))["b_auction"].drop_null().to_numpy()
    assert set(even[even > 1_010] % 10) == {3}


def test_skew_spikes_and_rotates_with_event_time() -> None:
    spiking = BidSkew(share=1.0, keys=(7,), pattern=Pattern.SPIKING, period=1.0)
    rows = table(20_000, skew=spiking).filter(pc.field("kind") == 2)
    since = rows["date_time"].to_numpy() - 1_436_918_400_000
    assert ((rows["b_auction"].to_numpy() == 7) == (since % 1_000 < 500)).all()
    rotating = BidSkew(share=1.0, hot=1, instances=4, pattern=Pattern.ROTATING, period=0.5)
    rows = table(20_000, skew=rotating).filter((pc.field("kind") == 2) & (pc.field("event_id") > 2_000))
    turns = (rows["date_time"].to_numpy() - 1_436_918_400_000) // 500
    assert {owner(b, 4) == t % 4 for b, t in zip(rows["b_auction"].to_pylist(), turns.tolist(), strict=True)} == {True}


@pytest.mark.parametrize(
    "wrong",
    [{"rate": 0}, {"persons": 0}, {"held_back": 2.0}, {"group": 953}, {"in_flight": -1}, {"bids": -1}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError):
        EventSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"keys": (1,), "hot": 1, "instances": 2}, {"hot": 3, "instances": 2}, {"keys": (1,), "pattern": "rotating"}],
)
def test_skew_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError):
        BidSkew(share=0.5, **{**wrong, **({"pattern": Pattern.ROTATING} if "pattern" in wrong else {})})  # type: ignore[arg-type]


# --- Rhino's records --------------------------------------------------------------------------------------------------


def records_in(kind: EventKind, path: Path) -> np.ndarray[Any, Any]:
    """The records of a file."""
    layout, data = LAYOUTS[kind], path.read_bytes()
    heads = {at: np.frombuffer(data, ">u4,>i4,>i8", 1, at)[0].item() for at in range(0, len(data), BLOCK)}
    return np.concatenate([np.frombuffer(data, layout.record, count, at + 16) for at, (_, count, _) in heads.items()])


def test_records_are_of_their_sizes_in_blocks_that_tell_what_is_to_come(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_records(EventSettings(), 20_000, tmp_path, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (20_000, 20_000)
    assert {kind: (layout.record.itemsize, layout.of_block) for kind, layout in LAYOUTS.items()} == {
        EventKind.PERSON: (206, 39),
        EventKind.AUCTION: (269, 30),
        EventKind.BID: (32, 255),
    }
    rows = table(20_000, text=True)
    bids = records_in(EventKind.BID, tmp_path / "bids.bin")
    assert bids["auction"].tolist() == rows["b_auction"].drop_null().to_pylist()
    assert bids["created"].tolist() == rows.filter(pc.field("kind") == 2)["date_time"].to_pylist()
    assert 0 <= bids["price"].min() < bids["price"].max() < 1
    people = records_in(EventKind.PERSON, tmp_path / "persons.bin")
    names = [f"{one.decode()} {other.decode()}" for one, other in people[["first_name", "last_name"]].tolist()]
    assert names == rows["p_name"].drop_null().to_pylist()
    data = (tmp_path / "auctions.bin").read_bytes()
    heads = [np.frombuffer(data, ">u4,>i4,>i8", 1, at)[0].item() for at in range(0, len(data), BLOCK)]
    assert heads[0] == (0x30061992, 30, 1_200 - 30)
    assert (sum(count for _, count, _ in heads), heads[-1][2]) == (1_200, 0)
