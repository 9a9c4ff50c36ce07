"""Views of state for people: pages by key, keys as texts, JSON values; kept for a few seconds, and never too large."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from seep.rows.readable import packed
from seep.running.queryable import StateView
from seep.running.state_views import KeptView, StateViews

MORE = 1 << 20


def view(table: pa.Table, *keys: str, epoch: int = 7, identity: tuple[str, ...] | None = None) -> StateView:
    return StateView("counter", epoch, {"counts": table}, {"counts": keys}, {"counts": identity or keys})


def page(table: pa.Table, *keys: str, **asked: Any) -> dict[str, Any]:
    given = {"container": None, "key": None, "offset": 0, "limit": 50} | asked
    return KeptView(view(table, *keys)).page(**given)


# --- pages ------------------------------------------------------------------------------------------------------------


def test_a_page_has_the_containers_with_their_columns_and_the_rows_by_key() -> None:
    table = pa.table({"word": ["to", "be", "or"], "n": pa.array([3, 1, 2], pa.int64())})
    assert page(table, "word", offset=1, limit=1) == {
        "operator": "counter",
        "epoch": 7,
        "containers": {
            "counts": {
                "columns": [{"name": "word", "type": "string"}, {"name": "n", "type": "int64"}],
                "keys": ["word"],
                "rows": 3,
            }
        },
        "container": "counts",
        "rows": [{"word": "or", "n": 2}],
        "offset": 1,
        "total": 3,
    }


@given(st.lists(st.none() | st.integers(-50, 50), unique=True), st.integers(1, 7))
@settings(deadline=None)
def test_pages_together_have_every_row_once_in_the_order_of_keys(keys: list[int | None], limit: int) -> None:
    kept = KeptView(view(pa.table({"key": pa.array(keys, pa.int64())}), "key"))
    found = []
    for offset in range(0, len(keys) + limit, limit):
        found += [row["key"] for row in kept.page(None, None, offset, limit)["rows"]]
    assert found == sorted(key for key in keys if key is not None) + [None] * keys.count(None)


def test_rows_of_one_key_are_sorted_by_what_else_identifies_them() -> None:
    table = pa.table({"key": [1, 0, 1], "at": [9, 5, 3]})
    kept = KeptView(view(table, "key", identity=("key", "at")))
    assert [row["at"] for row in kept.page(None, None, 0, 9)["rows"]] == [5, 3, 9]


def test_long_values_are_cut_and_an_answer_has_fewer_rows_rather_than_too_many_bytes() -> None:
    table = pa.table({"key": np.arange(500), "text": ["x" * 50_000] * 500})
    found = page(table, "key", limit=500)
    assert 1 < len(found["rows"]) < 500
    assert len(json.dumps(found)) < 2_500_000
    assert found["rows"][0]["text"].endswith("…")
    assert found["total"] == 500


# --- keys -------------------------------------------------------------------------------------------------------------

KEYS: list[tuple[pa.DataType, list[Any], list[str]]] = [
    (pa.string(), ["be", "null", ""], ["be", "null", ""]),
    (pa.int64(), [7, None, -1], ["7", "null", "-1"]),
    (pa.uint8(), [0, 255], ["0", "255"]),
    (pa.float64(), [0.5, math.nan, None, -1e300], ["0.5", "nan", "null", "-1e300"]),
    (pa.float32(), [0.1], ["0.1"]),
    (pa.bool_(), [True, False], ["true", "false"]),
    (pa.decimal128(10, 2), [Decimal("1.50")], ["1.50"]),
    (pa.date32(), [date(2026, 1, 31)], ["2026-01-31"]),
    (pa.timestamp("us"), [datetime(2026, 1, 31, 10, 0, 0, 5)], ["2026-01-31T10:00:00.000005"]),
    (pa.timestamp("ms", "UTC"), [datetime(2026, 1, 31, 10, tzinfo=UTC)], ["2026-01-31T10:00:00+00:00"]),
    (pa.binary(), [b"\x00\xff", b"text"], ["0x00ff", "text"]),
]


@pytest.mark.parametrize(("kind", "values", "texts"), KEYS, ids=[str(kind) for kind, _, _ in KEYS])
def test_a_key_is_found_by_its_text(kind: pa.DataType, values: list[Any], texts: list[str]) -> None:
    table = pa.table({"key": pa.array(values, kind), "n": np.arange(len(values))})
    for place, text in enumerate(texts):
        found = page(table, "key", key=[text])
        assert [row["n"] for row in found["rows"]] == [place]
        assert found["total"] == 1


@pytest.mark.parametrize(("kind", "values", "texts"), KEYS, ids=[str(kind) for kind, _, _ in KEYS])
def test_the_text_that_a_page_shows_for_a_key_finds_it(kind: pa.DataType, values: list[Any], texts: list[str]) -> None:
    assert len(values) == len(texts)
    table = pa.table({"key": pa.array(values, kind)})
    for row in page(table, "key")["rows"]:
        shown = row["key"] if isinstance(row["key"], str) else json.dumps(row["key"])
        assert page(table, "key", key=[shown])["rows"] == [row]


def test_a_key_of_several_columns_has_a_value_for_each() -> None:
    table = pa.table({"word": ["be", "be"], "day": [date(2026, 1, 1), date(2026, 1, 2)], "n": [1, 2]})
    assert page(table, "word", "day", key=["be", "2026-01-02"])["rows"][0]["n"] == 2
    with pytest.raises(UserError, match="a key of 'counts' of counter is word, day: give 2 values, not 1"):
        page(table, "word", "day", key=["be"])
    with pytest.raises(UserError, match=r"key column 'day' is of type date32.day., and 'soon' is no such value"):
        page(table, "word", "day", key=["be", "soon"])


def test_a_key_without_state_has_no_rows_and_an_unknown_container_is_refused() -> None:
    table = pa.table({"word": ["be"]})
    assert page(table, "word", key=["or"])["rows"] == []
    with pytest.raises(UserError, match="counter has no container 'pages'; it has counts"):
        page(table, "word", container="pages")


def test_null_and_nan_are_keys_like_any_other_in_python_too() -> None:
    found = view(pa.table({"key": pa.array([None, math.nan, 1.0]), "n": [1, 2, 3]}), "key")
    assert [row["n"] for key in (None, math.nan, 1.0) for row in found.get(key)] == [1, 2, 3]


# --- values -----------------------------------------------------------------------------------------------------------


def test_values_are_what_json_and_javascript_can_hold() -> None:
    table = pa.table(
        {
            "key": [1],
            "large": pa.array([2**53 + 1], pa.int64()),
            "nan": [math.nan],
            "bytes": pa.array([b"\x01"]),
            "at": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns")),
            "price": [Decimal("1.10")],
            "sum": pa.array([Decimal(12)], pa.decimal128(38, 0)),
            "tags": [[{"day": date(2026, 1, 31)}]],
            "value": packed([({"b", "a"}, 2**60)]),
        }
    )
    assert page(table, "key")["rows"] == [
        {
            "key": 1,
            "large": str(2**53 + 1),
            "nan": "nan",
            "bytes": "0x01",
            "at": "2023-11-14 22:13:20.000000001",
            "price": "1.10",
            "sum": 12,
            "tags": [{"day": "2026-01-31"}],
            "value": [["a", "b"], str(2**60)],
        }
    ]


# --- views that are kept ----------------------------------------------------------------------------------------------


class Run:
    """A run of which a test sets the time and the size of the state; each view is of the next epoch."""

    def __init__(self) -> None:
        self.now, self.size, self.taken = 0.0, 100, 0

    def read(self, operator: str) -> StateView:
        self.taken += 1
        table = pa.table({"key": [operator], "n": [self.taken]})
        return StateView(operator, self.taken, {"counts": table}, {"counts": ("key",)}, {"counts": ("key",)})

    def views(self) -> StateViews:
        return StateViews("orders", self.read, lambda _: self.size, MORE, clock=lambda: self.now)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def views(run: Run) -> Iterator[StateViews]:
    made = run.views()
    yield made
    made.close()


def epoch(views: StateViews, operator: str = "counter") -> int:
    return int(views.page(operator, None, None, 0, 10)["epoch"])


def test_questions_within_a_few_seconds_are_about_one_epoch_and_later_ones_about_another(
    run: Run, views: StateViews
) -> None:
    assert (epoch(views), epoch(views)) == (1, 1)
    assert views.sql("counter", "SELECT n FROM counts", 10)["epoch"] == 1
    run.now = 16.0
    assert epoch(views) == 2


def test_questions_at_the_same_time_share_one_view(run: Run, views: StateViews) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: epoch(views), range(32))) == {1}
    assert run.taken == 1


def test_few_views_are_kept_and_old_ones_are_forgotten_without_another_question(run: Run, views: StateViews) -> None:
    for operator in ("a", "b", "c"):
        epoch(views, operator)
    assert list(views._kept) == ["b", "c"]
    run.now = 16.0
    views.expire()
    assert not views._kept


def test_state_that_is_too_large_is_refused_before_it_is_taken_with_what_to_do(run: Run, views: StateViews) -> None:
    run.size = MORE + 1
    with pytest.raises(UserError) as refusal:
        epoch(views)
    assert "the state of counter has about 1.0 MiB, and at most 1.0 MiB of a running operator" in str(refusal.value)
    assert "take a savepoint, and read it with `seep state show --query orders --operator" in str(refusal.value)
    assert run.taken == 0


def test_sql_answers_columns_rows_and_whether_there_are_more(views: StateViews) -> None:
    answer = views.sql("counter", "SELECT range AS i, 'x' AS t FROM range(3)", 2)
    assert answer.pop("seconds") > 0
    assert answer == {
        "operator": "counter",
        "epoch": 1,
        "columns": [{"name": "i", "type": "int64"}, {"name": "t", "type": "string"}],
        "rows": [[0, "x"], [1, "x"]],
        "total_known": False,
        "more": True,
    }


def test_columns_of_one_name_are_all_in_the_answer(views: StateViews) -> None:
    assert views.sql("counter", "SELECT 1 AS a, 2 AS a, sum(n) AS s FROM counts", 2)["rows"] == [[1, 2, 1]]


def test_a_view_in_python_answers_sql_as_an_arrow_table() -> None:
    found = view(pa.table({"word": ["be", "or"], "n": [2, 1]}), "word")
    assert found.sql("SELECT word FROM counts ORDER BY n").to_pylist() == [{"word": "or"}, {"word": "be"}]
    with pytest.raises(UserError, match="the query failed: the function 'read_text' is not allowed"):
        found.sql("SELECT * FROM read_text('/etc/hostname')")
