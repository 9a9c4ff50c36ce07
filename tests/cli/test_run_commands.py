"""Commands for a run by the address of its dashboard; its name may be left out, and the exit code is an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from seep.cli.app import app
from seep.cli.display import progress
from seep.cli.runs import control
from tests.cli.pages import RUN, Page, Pages, answer, served
from tests.cli.test_top import MOMENT, STATUS
from tests.waiting import eventually

TOKEN = "s3cret-token-of-the-run"


def status(phase: str = "running", wrong: tuple[str, ...] = (), new: tuple[Any, ...] = (), **more: Any) -> Page:
    told = {"status": STATUS.to_json(), "events": list(MOMENT.events), "failure": "", "number": 7}
    return answer(told | {"phase": phase, "wrong": list(wrong), "new": list(new)} | more)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    monkeypatch.setenv("SEEP_HOME", "/no/such/place")
    monkeypatch.setenv("SEEP_TOKEN", TOKEN)
    with served() as found:
        monkeypatch.setenv("SEEP_URL", found.url)
        found.given["/api/v1/status"] = status()
        yield found


def seep(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert TOKEN not in result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def bodies(pages: Pages) -> list[tuple[str, Any]]:
    """Path and JSON of what the server was asked to do."""
    return [(asked.path, json.loads(asked.body)) for asked in pages.asked if asked.method == "POST"]


# -- which run ---------------------------------------------------------------------------------------------------------


def test_the_environment_says_address_and_token_and_the_name_may_be_left_out(pages: Pages) -> None:
    result = seep("status")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].startswith("run ab12cd34 of orders: running")
    assert pages.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("name", ["ab12cd34", "orders"])
def test_the_name_of_the_run_may_be_said_too(pages: Pages, name: str) -> None:
    pages.given["/api/v1/balance"] = answer({})
    assert seep("balance", name, "counter").output == "counter is being balanced\n"
    assert seep("balance", "counter").output == "counter is being balanced\n"
    assert bodies(pages) == [("/api/v1/balance", {"operator": "counter"})] * 2


def test_another_run_than_the_one_at_the_address_is_not_touched(pages: Pages) -> None:
    result = seep("drain", "payments", "n2")
    assert result.exit_code == 1
    assert f"the run at {pages.url} is ab12cd34 of orders, and not 'payments'; RUN may be left out" in result.output
    assert bodies(pages) == []


def test_a_key_of_several_columns_follows_the_operator_with_or_without_the_run(pages: Pages) -> None:
    columns = [{"name": "word", "type": "string"}, {"name": "n", "type": "int64"}]
    told = {"operator": "counter", "epoch": 5, "container": "counts", "offset": 0, "total": 1}
    told |= {"containers": {"counts": {"columns": columns, "keys": ["word"], "rows": 9}}}
    pages.given["/api/v1/state"] = answer(told | {"rows": [{"word": "be\x1b[2J", "n": 12}]})
    for names in (["counter", "a", "b"], ["orders", "counter", "a", "b"]):
        result = seep("state", "get", *names)
        assert result.output == "word       n\nbe\\x1b[2J  12\n"
        assert pages.asked[-1].path == "/api/v1/state?operator=counter&key=a&key=b"
    assert seep("state", "get", "counter", "orders").exit_code == 0, "an operator's key may be the name of the run"
    assert pages.asked[-1].path == "/api/v1/state?operator=counter&key=orders"


def test_a_file_with_the_token_goes_before_the_environment(pages: Pages, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("another-token-of-the-run\n")
    assert seep("status", "--token-file", str(file)).exit_code == 0
    assert pages.asked[-1].headers["Authorization"] == "Bearer another-token-of-the-run"


@pytest.mark.parametrize("content", ["", "short", f"{TOKEN} {TOKEN}", f"{TOKEN}\r\nHost: elsewhere", "café" * 8])
def test_what_is_no_token_is_refused_and_not_sent(pages: Pages, tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(content)
    result = seep("status", "--token-file", str(file))
    assert result.exit_code == 1
    assert f"--token-file {file} has " in result.output
    assert pages.asked == []


def test_a_file_with_a_token_that_is_not_there_is_named(pages: Pages, tmp_path: Path) -> None:
    result = seep("status", "--token-file", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "--token-file: the token in" in result.output
    assert pages.asked == []


def test_what_is_for_addresses_is_refused_without_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SEEP_URL", raising=False)
    result = seep("status", "orders", "--token-file", str(tmp_path / "token"))
    assert result.exit_code == 1
    assert "--token-file is for --url; a run of yours on this machine needs none" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("status",), "RUN must be given"),
        (("scale", "--to", "3"), "RUN and OPERATOR must be given"),
        (("drain", "orders"), "NODE must be given"),
        (("state", "sql", "orders"), "OPERATOR and SELECT must be given"),
        (("finish", "orders", "--wait", "--timeout", "soon"), "'soon' is no length of time"),
    ],
)
def test_a_command_line_that_says_too_little_is_an_error_of_usage(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.delenv("SEEP_URL", raising=False)
    result = seep(*arguments)
    assert result.exit_code == 2
    assert words in result.output


# -- status ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pages")
def test_a_healthy_run_is_a_few_lines_and_exit_code_0() -> None:
    result = seep("status")
    assert result.output.splitlines() == [
        "run ab12cd34 of orders: running, 12.3 s since it began",
        "healthy: nothing is wrong",
        "20,013 rows/s in (25,000 due); 1,234 rows/s out; latency p50 31.0 ms, p99 60.0 ms",
        "2 epochs in flight of at most 16; last commit 50.0 ms ago; watermark 1,500 behind; late 12",
        "1 instance on 5 nodes (1 idle); savepoint 2 at epoch 30 is the newest: 4.00 s old, 6.0 MiB",
    ]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (status(wrong=("node n3 was lost",)), "! node n3 was lost"),
        (status("failed", failure="operator map: boom"), "! operator map: boom"),
    ],
)
def test_what_is_wrong_is_said_and_exit_code_1(pages: Pages, page: Page, words: str) -> None:
    pages.given["/api/v1/status"] = page
    result = seep("status")
    assert result.exit_code == 1
    assert words in result.output
    assert "healthy" not in result.output


@pytest.mark.parametrize("phase", ["finished", "halted", "stopped", "starting"])
def test_a_run_that_is_over_as_it_should_be_is_healthy(pages: Pages, phase: str) -> None:
    pages.given["/api/v1/status"] = status(phase)
    assert seep("status").exit_code == 0


def test_a_run_that_cannot_be_reached_is_exit_code_2(pages: Pages) -> None:
    pages.given["/api/v1/status"] = answer({"error": "the driver does not answer"}, 504)
    assert seep("status").exit_code == 2


def test_a_status_as_json_is_the_answer_of_the_request(pages: Pages) -> None:
    pages.given["/api/v1/status"] = status(wrong=("late",))
    result = seep("status", "--json")
    assert result.exit_code == 1
    told = json.loads(result.output)
    assert set(told) == {"phase", "failure", "status", "wrong", "events", "new", "number"}


# -- waiting -----------------------------------------------------------------------------------------------------------

SCALED = {"kind": "scaled out", "at": 12.0, "operator": "counter", "seconds": 0.5, "detail": "1 → 3"}


def test_scaling_waits_for_the_event_that_ends_it(pages: Pages) -> None:
    pages.given |= {"/api/v1/scale": answer({}), "/api/v1/status": status(new=(SCALED | {"operator": "map"}, SCALED))}
    assert seep("scale", "counter", "--to", "3", "--wait").output == "counter has 3 instances in 500 ms\n"
    assert bodies(pages) == [("/api/v1/scale", {"operator": "counter", "to": 3})]
    assert pages.asked[-1].path == "/api/v1/status?after=7", "events from before it was asked for do not end it"
    assert json.loads(seep("scale", "counter", "--to", "3", "--wait", "--json").output) == SCALED
    assert json.loads(seep("scale", "counter", "--to", "3", "--json").output) == {}


def test_a_scaling_that_is_refused_is_an_error_with_the_reason(pages: Pages) -> None:
    refused = {"kind": "scaling refused", "at": 12.0, "operator": "counter", "detail": "no VM is left"}
    pages.given |= {"/api/v1/scale": answer({}), "/api/v1/status": status(new=(refused,))}
    result = seep("scale", "counter", "--to", "3", "--wait")
    assert result.exit_code == 1
    assert "error: counter was not scaled to 3: scaling refused: no VM is left" in result.output


def test_a_scaling_is_waited_for_no_longer_than_told_and_no_longer_than_the_run(pages: Pages) -> None:
    pages.given["/api/v1/scale"] = answer({})
    result = seep("scale", "counter", "--to", "3", "--wait", "--timeout", "50ms")
    assert result.exit_code == 2
    assert "counter was not scaled within 0.05 s; the run goes on with it" in result.output
    pages.given["/api/v1/status"] = status("finished")
    result = seep("scale", "counter", "--to", "3", "--wait")
    assert result.exit_code == 1
    assert "the run is over (finished), and counter was not scaled before" in result.output


@pytest.mark.parametrize(
    ("phase", "code", "words"),
    [
        ("finished", 0, "run ab12cd34 of orders is finished: all input is processed and committed"),
        ("failed", 1, "run ab12cd34 of orders has failed: boom"),
        ("halted", 1, "run ab12cd34 of orders was stopped before the end of its input"),
    ],
)
def test_the_end_of_a_run_is_waited_for_and_is_the_exit_code(pages: Pages, phase: str, code: int, words: str) -> None:
    pages.given |= {"/api/v1/finish": answer({}), "/api/v1/status": status(phase, failure="boom")}
    result = seep("finish", "--wait")
    assert (result.output.strip(), result.exit_code) == (words, code)
    assert json.loads(seep("finish", "--wait", "--json").output)["phase"] == phase


def test_a_savepoint_is_told_with_its_number_and_as_the_answer(pages: Pages) -> None:
    pages.given["/api/v1/savepoint"] = answer({"id": 12})
    assert seep("savepoint").output == "savepoint 12 is complete; begin from it with --restore 12\n"
    assert json.loads(seep("savepoint", "--json").output) == {"id": 12}


def test_a_savepoint_that_takes_time_shows_meanwhile_what_the_run_is_at(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_NEWS", 0.0)
    monkeypatch.setattr(progress, "_SILENT", 0.0)
    monkeypatch.setattr(progress, "_LINES_APART", 0.0)

    def stored_later() -> Page:
        assert eventually(lambda: [each.path for each in pages.asked].count("/api/v1/status") > 1)
        return answer({"id": 12})

    pages.given |= {"/api/v1/savepoint": stored_later, "/api/v1/status": status(wrong=("node n3 was lost", "late"))}
    result = seep("savepoint")
    assert result.stdout == "savepoint 12 is complete; begin from it with --restore 12\n"
    assert "ms so far; 2 epochs in flight; node n3 was lost\n" in result.stderr


def test_a_refusal_of_a_savepoint_is_told_as_it_is(pages: Pages) -> None:
    pages.given["/api/v1/savepoint"] = answer({"error": "a savepoint needs a storage"}, 400)
    result = seep("savepoint")
    assert (result.exit_code, "a savepoint needs a storage" in result.stderr) == (1, True)


def test_a_stop_with_a_savepoint_is_one_request(pages: Pages) -> None:
    pages.given["/api/v1/stop"] = answer({"id": 12})
    told = seep("stop", "--savepoint").output.splitlines()
    assert told == ["savepoint 12 is complete; begin from it with --restore 12", "run ab12cd34 of orders stops"]
    assert bodies(pages) == [("/api/v1/stop", {"savepoint": True})]


def test_a_viewer_is_told_that_acting_needs_another_role(pages: Pages) -> None:
    pages.given["/api/v1/finish"] = answer({"error": "a viewer may only read; finish needs an operator"}, 403)
    result = seep("finish")
    assert result.exit_code == 1
    assert "a viewer may only read; finish needs an operator" in result.output


# -- state -------------------------------------------------------------------------------------------------------------

COLUMNS = [{"name": "word", "type": "string"}, {"name": "n", "type": "int64"}]
STATE = {
    "operator": "counter",
    "epoch": 1200,
    "containers": {"counts": {"columns": COLUMNS, "keys": ["word"], "rows": 3000}, "late": {"columns": []}},
    "container": "counts",
    "rows": [{"word": "be", "n": 12}, {"word": "to", "n": None}],
    "offset": 50,
    "total": 3000,
}


def test_rows_of_state_are_a_page_with_its_place(pages: Pages) -> None:
    pages.given["/api/v1/state"] = answer(STATE)
    told = seep("state", "rows", "counter", "--offset", "50", "--limit", "2").output.splitlines()
    assert told[0] == "counts of counter after epoch 1,200: rows 51 to 52 of 3,000"
    assert told[1:] == ["word  n", "be    12", "to    null", "other containers: late; see --container"]
    assert pages.asked[-1].path == "/api/v1/state?operator=counter&offset=50&limit=2"
    assert json.loads(seep("state", "rows", "counter", "--json").output) == STATE


def test_a_page_behind_the_end_is_said_to_be_empty(pages: Pages) -> None:
    pages.given["/api/v1/state"] = answer(STATE | {"rows": [], "offset": 5000})
    told = seep("state", "rows", "counter", "--offset", "5000").output
    assert "counts of counter after epoch 1,200: no row from 5,001 on" in told


def test_a_key_without_state_is_exit_code_1(pages: Pages) -> None:
    pages.given["/api/v1/state"] = answer(STATE | {"rows": []})
    result = seep("state", "get", "counter", "nobody")
    assert result.exit_code == 1
    assert "error: counts of counter has nothing for the key nobody" in result.output


def test_the_result_of_a_query_is_a_table(pages: Pages) -> None:
    told = {"operator": "counter", "epoch": 7, "columns": COLUMNS, "rows": [["be", 12]], "more": True, "seconds": 0.012}
    pages.given["/api/v1/sql"] = answer(told | {"total_known": False})
    lines = seep("state", "sql", "counter", "select * from counts", "--limit", "1").output.splitlines()
    assert lines == ["word  n", "be    12", "1 row, and there are more; see --limit; after epoch 7, in 12.0 ms"]
    assert bodies(pages) == [("/api/v1/sql", {"operator": "counter", "sql": "select * from counts", "limit": 1})]


@pytest.mark.usefixtures("pages")
def test_names_of_runs_on_this_machine_are_one_json_object() -> None:
    assert json.loads(seep("runs", "--json").output) == {"runs": []}
    assert RUN["id"] not in seep("runs").output
