"""Interactive work: runs that are still there are found again, and sessions that were opened for them are closed."""

from __future__ import annotations

import json
import re
import sys

import pyarrow as pa

import seep
from seep.query.query import Query
from tests.cli.command import started


def test_a_cell_that_is_run_again_names_the_run_and_a_run_that_is_over_keeps_no_session() -> None:
    with started(sys.executable, "-m", "tests.runtime.cells") as program:
        code, output = program.end()
        assert program.processes() == []
    assert code == 0, output
    said = json.loads(output.splitlines()[-1])
    name = f"run {said['id']} of query 'cells', which is running"
    assert said["again"].startswith(name)
    assert "seep.runs()" in said["again"]
    assert said["found"] == [True]
    assert re.fullmatch(rf"\[<Run {said['id']} of query 'cells', running, [\d,]+ rows read>\]", said["repr"])
    assert said["closed by itself"]
    assert len(set(said["rows"])) == 1
    assert said["rows"][0] > 0
    assert said["over"] == [f"<Run {said['id']} of query 'cells', finished, {said['rows'][0]:,} rows read>", []]
    assert said["lent"] == [200, 1, 1], "the DataFrame needs the session, so it is there until the run is stopped"
    assert "which is finished" in said["fourth"]
    assert said["stopped"][:2] == [0, 0]
    assert "pass another one with spark=" in said["stopped"][2]


def test_a_query_tells_what_it_is_made_of() -> None:
    query = Query("words")
    assert repr(query) == "<Query 'words': no operators yet>"
    lines = query.source("lines", seep.sources.memory(pa.table({"line": ["a"]})))
    lines.filter("some", lambda batch: [True] * len(batch)).union(lines).sink("out", seep.sinks.collect())
    assert repr(query) == "<Query 'words': lines, some(lines), out(some, lines)>"
