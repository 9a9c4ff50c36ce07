"""`seep nexmark`: a log and a result on real processes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nexmark.queries import QUERIES
from nexmark.schema import LOG
from seep.cli.app import app
from tests.cli.test_wordcount import seep


def nexmark(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["nexmark", *arguments])
    return answer.exit_code, " ".join(answer.output.split())


def test_a_log_has_the_columns_of_the_specification_and_is_equal_for_equal_options(tmp_path: Path) -> None:
    options = ["--events", "3000", "--out-of-order", "100", "--skew", "0.5", "--skew-to", "1/4", "--seed", "3"]
    for name in ("a", "b"):
        assert nexmark("generate", *options, "--out", str(tmp_path / f"{name}.parquet"))[0] == 0
    a, b = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("a", "b"))
    assert a.equals(b)
    assert a.schema.equals(LOG)
    assert a["seq"].to_pylist() == list(range(3_000))


def test_records_of_rhino_go_into_a_folder(tmp_path: Path) -> None:
    code, output = nexmark("generate", "--events", "1000", "--rhino", "--out", str(tmp_path / "records"))
    assert code == 0, output
    assert {path.name for path in (tmp_path / "records").iterdir()} == {"persons.bin", "auctions.bin", "bids.bin"}


def test_all_queries_are_listed() -> None:
    output = nexmark("queries")[1]
    assert all(f"{name} " in output for name in QUERIES)


@pytest.mark.acceptance
def test_a_run_on_a_log_writes_its_result_in_order_though_a_node_is_killed(tmp_path: Path) -> None:
    log, out, report = tmp_path / "log.parquet", tmp_path / "result.parquet", tmp_path / "report.json"
    assert nexmark("generate", "--events", "20000", "--no-text", "--no-filler", "--out", str(log))[0] == 0
    options = ["--rate", "4000", "--chaos", "kill:reducer@2s", "--nodes", "2", "--checkpoint", "1s"]
    with seep("nexmark", "run", "AF", "--input", str(log), "--out", str(out), "--report", str(report), *options) as run:
        code, output = run.end()
    assert code == 0, output
    bids = pq.read_table(log).filter(pc.field("kind") == 2)
    sums = bids.group_by("b_auction").aggregate([("b_price", "sum"), ("b_price", "count")]).sort_by("b_auction")
    assert pq.read_table(out).to_pydict() == dict(
        zip(("auction", "sum_price", "num"), sums.to_pydict().values(), strict=True)
    )
    assert list(tmp_path.glob("result*")) == [out]
    assert json.loads(report.read_text())["summary"]["recoveries"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "Q99"], "there is no query 'Q99'"),
        (["run", "Q5", "--input", "log.parquet"], "give --out FILE"),
        (["run", "Q5", "--input", "/nowhere/log.parquet", "--out", "{tmp}/r.parquet"], "there is no log"),
        (["run", "Q5", "--input", "log.parquet", "--out", "{tmp}/r.csv"], "end with .parquet"),
        (["run", "Q5", "--gap", "5s"], "--gap: this query has no such length"),
        (["run", "Q5", "--size", "soon"], "--size:"),
        (["generate", "--out", "{tmp}/log.csv"], "end with .parquet"),
        (["generate", "--out", "{tmp}/log.parquet", "--skew", "0.5", "--skew-to", "most"], "--skew-to 'most'"),
        (["generate", "--out", "{tmp}/log.parquet", "--sizes", "1,2"], "three numbers of bytes"),
        (["generate", "--out", "{tmp}/log.parquet", "--out-of-order", "953"], "divides it"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    code, output = nexmark(*(each.replace("{tmp}", str(tmp_path)) for each in arguments))
    assert code == 1, output
    assert words in output
