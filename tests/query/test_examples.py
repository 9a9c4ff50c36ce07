"""The examples do what they say, and so does every line of the API's page."""

from __future__ import annotations

import doctest
import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seep.query.stream import Stream, Windowed
from seep.testing import rows, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "query-api.md"


def load(name: str) -> Any:
    spec = spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_known_here_and_listed() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert names == {"wordcount", "sessions", "join", "topk", "spark_pipeline", "kafka_pipeline"}
    listed = re.findall(r"\[(\w+)\.py\]", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    assert set(listed) == names


def test_wordcount_counts_words() -> None:
    example = load("wordcount")
    found = run(example.query, parallelism={"counter": 2})["out"]
    expected: Counter[str] = Counter()
    for partition in (0, 1):
        given = example.write_lines(partition, 0, example.SECONDS * example.LINES_PER_SECOND)
        expected.update(word for line in given["line"].to_pylist() for word in line.split())
    totals: Counter[str] = Counter()
    for row in found.to_pylist():
        totals[row["word"]] += row["n"]
    assert totals == expected
    assert found.num_rows == len(expected) * 6


def test_sessions_end_after_half_a_minute() -> None:
    example = load("sessions")
    expected: Counter[str] = Counter()
    table = example.clicks().sort_by([("visitor", "ascending"), ("at", "ascending")]).to_pylist()
    before: dict[str, Any] | None = None
    clicks = 0
    for row in [*table, None]:
        if before and (row is None or row["visitor"] != before["visitor"] or (row["at"] - before["at"]).seconds >= 30):
            expected[repr((before["visitor"], clicks))] += 1
            clicks = 0
        before, clicks = row, clicks + 1
    found = run(example.query)["out"]
    assert Counter(repr((row["visitor"], row["clicks"])) for row in found.to_pylist()) == expected


def test_join_adds_up_what_was_paid_in_time() -> None:
    example = load("join")
    placed = {row["order"]: row for row in example.orders().to_pylist()}
    paid = [
        (placed[row["reference"]]["customer"], row["cents"])
        for row in example.payments().to_pylist()
        if (row["at"] - placed[row["reference"]]["at"]).total_seconds() <= 3_600
    ]
    tables = run(example.query)
    assert tables["paid-orders"].num_rows == len(paid) > 1_000
    spent: Counter[int] = Counter()
    for customer, cents in paid:
        spent[customer] += cents
    assert {row["customer"]: round(row["euros"] * 100) for row in tables["customers"].to_pylist()} == spent


def test_topk_finds_the_languages_that_are_read_most() -> None:
    example = load("topk")
    read: Counter[tuple[Any, str]] = Counter()
    for partition in range(example.PARTITIONS):
        made = example.views(partition, 0, example.ROWS)
        starts = (made["at"].cast(pa.int64()).to_numpy() // 30_000_000).tolist()
        read.update(zip(starts, made["language"].to_pylist(), strict=True))
    expected = set()
    for start in {start for start, _ in read}:
        ranked = sorted((-n, language) for (at, language), n in read.items() if at == start)
        expected |= {(start, language, -n) for n, language in ranked[: example.K]}
    rows = run(example.query, parallelism={"reduce": 3}, rows_per_epoch=100_000)["out"]
    starts = (rows["window_start"].cast(pa.int64()).to_numpy() // 30_000_000).tolist()
    found = list(zip(starts, rows["language"].to_pylist(), rows["views"].to_pylist(), strict=True))
    assert set(found) == expected
    assert len(found) == len(expected) == 2 * example.K
    totals = Counter(language for _, language, _ in found)
    assert totals["aa"] == 2


def test_the_page_of_the_api_is_right_in_every_example() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 10
    shared: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, shared, f"block {number}", str(PAGE), 0)
        assert test.examples
        runner.run(test, clear_globs=False)
        shared = test.globs
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("kind", [Stream, Windowed])
def test_every_call_is_on_the_page(kind: type) -> None:
    page = PAGE.read_text(encoding="utf-8")
    calls = [name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")]
    assert [name for name in calls if f"`{name}" not in page and f".{name}(" not in page] == []


def test_rows_compare_tables_whatever_the_order() -> None:
    assert rows(pa.table({"n": [1, 2]})) == rows(pa.table({"n": [2, 1]}))
    assert rows(pa.table({"n": [1, 2]})) != rows(pa.table({"n": [1, 2, 2]}))
