"""`seep lrb run` on real processes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lrb.validation.reference import answers
from seep.cli.app import app
from tests.cli.test_wordcount import seep
from tests.lrb.traffic import rows, traffic


def printed(folder: Path) -> list[list[tuple[int, ...]]]:
    """The lines of the four files without the type; they begin with it."""
    names = ("tolls", "accidents", "balances", "expenditures")
    lines = [(folder / f"{name}.csv").read_text().splitlines() for name in names]
    numbers = [[tuple(map(int, line.split(","))) for line in each] for each in lines]
    assert all(line[0] == kind for kind, each in enumerate(numbers) for line in each)
    return [[line[1:] for line in each] for each in numbers]


def test_outputs_are_right_and_in_order_though_a_node_is_killed_and_lines_are_malformed(tmp_path: Path) -> None:
    tuples = traffic(7, vehicles=400, seconds=400)
    lines = [",".join(map(str, each)) for each in tuples]
    (tmp_path / "traffic.csv").write_text("\n".join([*lines[:100], "0,1,2", *lines[100:]]) + "\n")
    options = ["--rate", str(len(lines) // 4), "--report", str(tmp_path / "report.json"), "--checkpoint", "1s"]
    chaos = ["--chaos", "kill:toll_calculator@2s"]
    out = tmp_path / "out"
    with seep("lrb", "run", "--input", str(tmp_path / "traffic.csv"), "--out", str(out), *options, *chaos) as command:
        code, output = command.end()
    assert code == 0, output
    found = printed(out)
    assert [sorted(each) for each in found] == rows(answers(tuples))
    tolls, alerts, *queries = found
    assert [(time, vid) for vid, time, *_ in tolls] == sorted((time, vid) for vid, time, *_ in tolls)
    assert [(time, vid) for time, _, vid, _ in alerts] == sorted((time, vid) for time, _, vid, _ in alerts)
    assert all([each[0] for each in lines] == sorted(each[0] for each in lines) for lines in queries)
    assert "1 line left out" in output
    assert (out / "dead-letters.csv").read_text().splitlines()[1].startswith("101,")
    report = json.loads((tmp_path / "report.json").read_text())
    recovered = {each["instance"] for each in report["summary"]["recoveries"]}
    assert recovered == {"toll_calculator[0]"}


@pytest.mark.acceptance
def test_live_traffic_is_answered_checked_and_timed(tmp_path: Path) -> None:
    options = ("--xways", "2", "--speed", "100", "--minutes", "5", "--nodes", "2", "--out", str(tmp_path))
    with seep("lrb", "run", *options, "--check") as command:
        code, output = command.end()
    assert code == 0, output
    assert "against the reference: all right" in output
    assert "violations: " in output
    (answers,) = re.findall(r"responses: ([\d,]+) answers, p50", output)
    assert int(answers.replace(",", "")) == sum(map(len, printed(tmp_path))) > 1_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--input FILE for the traffic of a file"),
        (["--input", "a.csv", "--xways", "1"], "--input FILE for the traffic of a file"),
        (["--input", "a.csv"], "give --out DIR"),
        (["--xways", "1", "--rate", "5"], "give --speed instead"),
        (["--input", "/nowhere/a.csv", "--out", "{tmp}"], "there is no input file"),
    ],
)
def test_what_makes_no_run_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    given = [each.replace("{tmp}", str(tmp_path)) for each in arguments]
    answer = CliRunner().invoke(app, ["lrb", "run", *given])
    assert answer.exit_code == 1
    assert words in " ".join(answer.output.split())
