"""Queries, streams, runs, reports and migrations in a notebook: HTML without scripts, and text that stays text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seep
from primitives.errors import UserError
from seep.control.migration import MigrationProgress, MigrationState
from seep.record.events import ScaledOut
from seep.record.status import OpenDecision, OperatorStatus, Status
from seep.reports.notebook import RunReport, migration_html, run_html
from tests.runtime.counting import SCHEMA, numbers

HOSTILE = '<script>alert("1")</script>'


class Seen(HTMLParser):
    """The tags and the text of a fragment; it must be balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        self.tags.append(tag)
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def stream_of(rows: int) -> tuple[seep.Query, Any]:
    query = seep.Query("words")
    batch = pa.record_batch({"word": [f"w{n % 3}" for n in range(rows)], "n": list(range(rows))})
    return query, query.source("lines", seep.sources.memory([batch]))


def doubled(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"word": batch["word"], "n": pc.multiply(batch["n"], 2)}


# --- queries and streams ----------------------------------------------------------------------------------------------


def test_a_query_is_shown_as_a_graph_while_it_is_written() -> None:
    query = seep.Query("words")
    assert "no operators yet" in Seen(query._repr_html_()).text
    query, lines = stream_of(3)
    counts = lines.map("double", doubled, parallelism=2).key_by("word").aggregate("count", n=seep.count())
    assert "Aggregate by word" in Seen(query._repr_html_()).text, "also without a sink, which it needs to run"
    counts.sink("out", seep.sinks.collect())
    seen = Seen(query._repr_html_())
    for words in ("query words", "lines", "double", "Map", "2 instances", "count", "out", "Collect"):
        assert words in seen.text
    assert "svg" in seen.tags


def test_an_operator_of_a_user_is_shown_by_its_class() -> None:
    class Keep(seep.StatelessOperator):
        def output(self, inputs: Any) -> pa.Schema:
            return inputs[0].schema

        def process(self, inputs: Any) -> Any:
            return inputs[0]

    query, lines = stream_of(3)
    lines.apply("keep", Keep)
    assert "Keep" in Seen(query._repr_html_()).text


def test_a_stream_shows_its_columns_with_key_and_event_time() -> None:
    query = seep.Query("words")
    batch = pa.record_batch({"word": ["a"], "at": pa.array([0], pa.timestamp("ms"))})
    stream = query.source("lines", seep.sources.memory([batch], time="at")).key_by("word")
    text = Seen(stream._repr_html_()).text
    assert "word string key" in text
    assert "at timestamp[ms] event time" in text


def test_a_preview_has_the_first_rows_and_leaves_the_query_as_it_was() -> None:
    query, lines = stream_of(5_000)
    stream = lines.map("double", doubled)
    before = repr(query)
    preview = stream.preview(3)
    assert preview.table.to_pylist() == [{"word": f"w{n}", "n": 2 * n} for n in range(3)]
    assert "the first 3 rows of double" in Seen(preview._repr_html_()).text
    assert repr(query) == before


def test_a_preview_says_when_it_has_all_rows() -> None:
    _, lines = stream_of(2)
    assert "2 rows of lines, which are all" in repr(lines.preview())


def test_a_preview_of_a_source_without_end_ends() -> None:
    query = seep.Query("endless")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA))
    never = source.filter("never", lambda batch: pc.less(batch["n"], -1))
    assert source.preview(4).table.num_rows == 4
    found = never.preview(epochs=3)
    assert (found.table.num_rows, found.is_whole) == (0, False)


def test_a_preview_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="preview of 0 rows in 20 epochs: choose whole numbers from 1 on"):
        stream_of(2)[1].preview(0)


def test_rows_are_text_whatever_they_contain() -> None:
    query = seep.Query("words")
    stream = query.source("lines", seep.sources.memory([pa.record_batch({HOSTILE: [HOSTILE * 9]})]))
    for html in (stream._repr_html_(), stream.preview()._repr_html_()):
        assert "script" not in Seen(html).tags


# --- runs -------------------------------------------------------------------------------------------------------------


def program() -> Any:
    query, lines = stream_of(3)
    lines.key_by("word").aggregate("count", n=seep.count()).sink("out", seep.sinks.collect())
    return query.compile()


def status(**fields: Any) -> Status:
    count = OperatorStatus("count", 4, 9, 12_345.0, 10.0, 0.82, 0.1, 3 << 20, 0, None)
    given: dict[str, Any] = {
        "at": 3.0, "ticked": 12, "committed": 9, "rows_read": 36_000, "rows_per_second": 12_345.0,
        "latency": {"p50": 0.031}, "instances": (), "nodes": 3, "idle_nodes": 1, "operators": (count,),
        "edges": {"lines->count:0": 12_345.0}, "vms": {"warm": 2},
    }  # fmt: skip
    return Status(**(given | fields))


def test_a_run_is_shown_with_its_figures_its_graph_and_what_happened() -> None:
    told = [ScaledOut(operator="count", before=2, after=4, seconds=1.0, waited=0.0, latency_peak=0.1, why="hot")]
    open_one = OpenDecision("scaling", "count", 2.0, False, HOSTILE)
    seen = Seen(run_html("run 1 of query words: running", program().graph, status(decisions=(open_one,)), told, None))
    for words in ("36,000 rows read", "12,345 rows/s", "p50 31.0 ms", "epoch 9 committed, 3 in flight", "2 warm"):
        assert words in seen.text
    for words in (
        "4 instances, busy 82%",
        "state 3.0 MiB",
        "12.3k rows/s",
        "scaled out count",
        "scaling of count is open",
    ):
        assert words in seen.text
    assert "script" not in seen.tags


def test_a_run_that_has_failed_begins_with_the_first_line_of_the_reason() -> None:
    seen = Seen(run_html("run 1", program().graph, None, [], UserError(f"operator 'count': {HOSTILE}\nmore")))
    assert "operator 'count': <script>" in seen.text
    assert "more" not in seen.text
    assert "script" not in seen.tags


def test_a_migration_is_shown_by_operator_with_a_bar() -> None:
    one = MigrationProgress("count", "fluid", MigrationState.MOVING, 8, 3, 24, 40, 1 << 20, 2 << 20, 7, 1.5)
    other = MigrationProgress("join", "fluid", MigrationState.REFUSED, 0, 0, 0, 0, 0, 0, 0, 0.0, why=HOSTILE)
    seen = Seen(migration_html([one, other]))
    assert "24 of 64 slots moved in 3 of 8 steps, 1.0 MiB handed over and 2.0 MiB ahead, 7 rows held back" in seen.text
    assert seen.tags.count("progress") == 2
    assert "script" not in seen.tags


def test_a_report_stays_plain_data() -> None:
    report = RunReport({"query": "words"})
    assert report == {"query": "words"}
    assert isinstance(report, dict)
