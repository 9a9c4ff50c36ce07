"""The command line as a whole: quick to help, clear when something is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from primitives.errors import EnvironmentFault, InternalError, UserError
from seep.cli import commands, main
from seep.cli.app import app
from seep.cli.flags import Flags
from seep.running.chaos import StrikeKind

runner = CliRunner()


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["run"],
        ["wordcount"],
        ["migrate"],
        ["doctor"],
        ["config"],
        ["config", "check"],
        ["config", "show"],
        ["config", "schema"],
    ],
)
def test_every_help_has_an_example(command: list[str]) -> None:
    answer = runner.invoke(app, [*command, "--help"])
    assert answer.exit_code == 0
    assert "Example: seep " in answer.output


@pytest.mark.parametrize(
    ("flag", "words"),
    [("--chaos", [*StrikeKind, "counter[0]", "@5s"]), ("--restore", ["auto", "none", "latest", "number", "storage"])],
)
def test_a_flag_that_has_a_language_of_its_own_explains_it(flag: str, words: list[str]) -> None:
    lines = runner.invoke(app, ["run", "--help"]).output.split("\n  --")
    [told] = [line for line in lines if f"--{line}".startswith(flag)]
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize("arguments", [["--metrics"], ["--metrics", "9400"], ["--metrics", "--balance"]])
def test_metrics_may_be_asked_for_with_a_port_and_without(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Flags] = []
    monkeypatch.setattr(commands, "run_query", lambda _, flags: ran.append(flags))
    monkeypatch.setattr(sys, "argv", ["seep", "run", *arguments, "words.py:query"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, capsys.readouterr().err
    assert [flags.metrics for flags in ran] == [9400 if "9400" in arguments else 0]


def test_the_version_is_told() -> None:
    answer = runner.invoke(app, ["--version"])
    assert (answer.exit_code, answer.output.split()[0]) == (0, "seep")


def test_help_imports_nothing_that_takes_long() -> None:
    heavy = ["pyspark", "numba", "numpy", "pyarrow"]
    program = (
        "import sys; from seep.cli.app import app\n"
        "try: app(['wordcount', '--help'])\n"
        "except SystemExit: pass\n"
        f"sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def given_to_run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Flags:
    """The flags that `seep run` understood."""
    taken: list[Flags] = []
    monkeypatch.setattr(commands, "run_query", lambda _, flags: taken.append(flags))
    answer = runner.invoke(app, ["run", "module:query", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return taken[0]


def test_flags_that_are_not_given_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_to_run(monkeypatch) == Flags()


def test_every_flag_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "--master local[4] --policy p.yaml --epoch 20ms --checkpoint 1s --parallelism a=2 --parallelism b=3 --nodes 4"
    )
    words += " --spare 2 --vm-cpu 0.2 --seconds 9 --rate 20k --rate-profile spike --chaos kill:a@5s"
    words += " --tls --report r.json -q -v"
    flags = given_to_run(monkeypatch, *words.split())
    assert (flags.master, flags.policy, flags.report) == ("local[4]", Path("p.yaml"), Path("r.json"))
    assert (flags.epoch, flags.checkpoint, flags.seconds, flags.rate) == ("20ms", "1s", "9", "20k")
    assert (flags.parallelism, flags.nodes, flags.spare, flags.vm_cpu) == (["a=2", "b=3"], 4, 2, 0.2)
    assert (flags.rate_profile, flags.chaos) == ("spike", "kill:a@5s")
    assert (flags.tls, flags.quiet, flags.verbose) == (True, True, True)


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (UserError("no column [x]"), 1, "error: no column [x]\n"),
        (EnvironmentFault("no Java"), 2, "environment: no Java\n"),
        (InternalError("odd"), 3, "internal error: odd\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int, line: str
) -> None:
    monkeypatch.setattr(commands, "run_query", _raising(failure))
    answer = runner.invoke(app, ["run", "module:query"])
    assert (answer.exit_code, answer.stderr, answer.stdout) == (code, line, "")


def test_the_trace_of_a_failure_is_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "run_query", _raising(UserError("no column")))
    answer = runner.invoke(app, ["run", "module:query", "-v"])
    assert "Traceback" in answer.stderr
    assert answer.stderr.endswith("error: no column\n")
    assert answer.exit_code == 1


def _raising(failure: BaseException) -> Any:
    def command(*_: object) -> None:
        raise failure

    return command


class FakeRun:
    """A word count that is over, and had found what it is told to have found."""

    halted = False
    goes_on = False

    def __init__(self, found: Any) -> None:
        self.found = found

    def report(self) -> dict[str, Any]:
        from seep.record.report import make_report

        return make_report("wordcount", (), (), rows=8, latency={}, largest_gap=0.0)

    def result(self, sink: str) -> Any:
        assert sink == "out"
        return self.found

    def positions(self, source: str) -> dict[int, Any]:
        from seep.rows.position import Position

        assert source == "lines"
        return {0: list(Position(4, rows=4)), 2: list(Position(4, rows=4))}


def wordcount_that_finds(monkeypatch: pytest.MonkeyPatch, less: int) -> Any:
    """`seep wordcount` over a run that has lost some rows."""
    import pyarrow as pa

    from seep.workloads.wordcount import recount

    keys = sorted(recount({0: 4, 2: 4}).items())[less:]
    starts = pa.array([start for (start, _), _ in keys], pa.timestamp("us"))
    words, counts = [word for (_, word), _ in keys], [n for _, n in keys]
    found = pa.table({"word": words, "window_start": starts, "n": counts})

    @contextmanager
    def session(*_: object) -> Iterator[FakeRun]:
        yield FakeRun(found)

    monkeypatch.setattr(commands, "session", session)
    return runner.invoke(app, ["wordcount"], catch_exceptions=False)


def test_right_counts_are_said_to_be_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = wordcount_that_finds(monkeypatch, less=0)
    assert answer.exit_code == 0
    assert answer.output.splitlines()[-1].endswith("counts: equal")


def test_wrong_counts_are_shown_and_end_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = wordcount_that_finds(monkeypatch, less=15)
    assert answer.exit_code == 1
    assert "counts: 15 are wrong" in answer.output
    assert answer.output.count("is missing, and should be") == 10
