"""`seep state`: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from primitives.errors import UserError
from seep.cli.app import app
from seep.cli.display.tables import TextTable, show
from seep.cli.state_commands import slots_in
from seep.inspection import Stored
from tests.inspection.orders import QUERY, WORDS, Counter, Stage


@pytest.fixture
def counter(stage: Stage) -> Counter:
    counter = Counter().see(*WORDS)
    stage.take(counter)
    stage.take(counter.forget(WORDS[0]).see("be", WORDS[1]), savepoint=True)
    return counter


def state(command: str, stage: Stage, *words: str | Path, query: str | None = QUERY) -> Result:
    where = ["--storage", stage.location, *(["--query", query] if query else [])]
    return CliRunner().invoke(app, ["state", command, *map(str, words), *where], catch_exceptions=False)


pytestmark = pytest.mark.usefixtures("counter")


def test_queries_are_listed_and_checkpoints_of_one(stage: Stage) -> None:
    assert state("ls", stage, query=None).output.splitlines()[1].split() == ["orders", "2", "2"]
    _, newest, oldest = state("ls", stage).output.splitlines()
    assert newest.split()[:2] == ["2", "14"]
    assert "savepoint" in newest
    assert oldest.startswith("1   7      2027-01-15 08:00:01 UTC ")


def test_checkpoints_that_a_run_went_back_behind_are_listed_as_abandoned(stage: Stage) -> None:
    first = stage.catalogue.standing(1)
    with stage.catalogue.enter("went back").begin([first.id]) as attempt:
        attempt.commit(first.model_copy(update={"id": attempt.id, "abandoned": (2,)}).to_json())
    assert ["abandoned" in line for line in state("ls", stage).output.splitlines()[1:]] == [False, True, False]
    assert [each["abandoned"] for each in json.loads(state("ls", stage, "--json").output)] == [False, True, False]


@pytest.mark.parametrize("place", ["nowhere", "elsewhere"])
def test_a_place_that_is_not_there_or_has_other_things_is_no_empty_list(tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "notes.txt").write_text("no checkpoint")
    for words in ([], ["--json"], ["--query", QUERY]):
        command = ["state", "ls", "--storage", str(tmp_path / place), *words]
        refused = CliRunner().invoke(app, command, catch_exceptions=False)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"{tmp_path.as_uri()}/{place} has no " in refused.stderr
    assert not (tmp_path / "nowhere").exists()


def test_a_list_for_programs_has_numbers(stage: Stage) -> None:
    newest, _ = json.loads(state("ls", stage, "--json").output)
    assert (newest["id"], newest["epoch"], newest["savepoint"]) == (2, 14, True)
    assert newest["bytes"] > 10_000


def test_a_damaged_checkpoint_is_listed_as_such_and_latest_is_refused(stage: Stage) -> None:
    manifest = next(Path(stage.location).rglob("*2.manifest"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    listed = state("ls", stage)
    assert listed.stdout.splitlines()[1].startswith("1 ")
    assert "is damaged" in listed.stderr
    refused = state("show", stage)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "is damaged" in refused.stderr
    assert "the newest one that can be read is 1" in refused.stderr


def test_a_checkpoint_is_shown_by_its_containers(stage: Stage) -> None:
    first, header, counts, *_ = state("show", stage).output.splitlines()
    assert first.startswith("checkpoint 2 of orders, epoch 14, 2027-01-15 08:00:02 UTC, ")
    assert first.endswith(", savepoint")
    assert header.split() == ["operator", "container", "instances", "slots", "key", "columns", "bytes"]
    assert counts.startswith("counter   counts     2          16     word  word string, n int64, score double")


def test_a_key_is_shown_in_all_containers_or_one(stage: Stage) -> None:
    output = state("show", stage, "--operator", "counter", "--key", "word=be").output
    assert '["late", 2]' in output
    assert output.count(" of counter\n") == 5
    one = state("show", stage, "--operator", "counter", "--container", "counts", "--key", "word=word 1").output
    assert one.splitlines() == ["counts of counter", "word    n  score", "word 1  2  1.0"]


def test_rows_are_limited_and_it_is_said_that_there_are_more(stage: Stage) -> None:
    words = ("--operator", "counter", "--container", "last page", "--limit", "2")
    assert state("show", stage, *words).output.endswith("… and more; see --limit\n")
    (found,) = json.loads(state("show", stage, *words, "--json").output)
    assert (len(found["rows"]), found["more"]) == (2, True)
    assert found["rows"][0]["value"]["tags"] == ["a", "b"]


def test_some_slots_are_shown_without_the_others(stage: Stage) -> None:
    words = ("--operator", "counter", "--container", "counts", "--limit", "99", "--json")
    parts = [json.loads(state("show", stage, *words, "--slots", slots).output)[0] for slots in ("0-7,9", "8,10-15")]
    shown = [row["word"] for part in parts for row in part["rows"]]
    assert sorted(shown) == sorted(["be", *WORDS[1:]])


def test_stats_are_said_of_every_container(stage: Stage) -> None:
    lines = state("stats", stage).output.splitlines()
    assert lines[0].startswith("counts of counter: 60 rows, 1.6 KiB in 16 slots; stored as ")
    assert lines[1].startswith("the fullest slot has 2.")
    found = json.loads(state("stats", stage, "--operator", "counter", "--json").output)
    assert [each["container"] for each in found] == ["counts", "last page", "lists", "bids", "timers"]
    assert sum(slot["rows"] for slot in found[0]["slots"]) == found[0]["rows"] == 60


def test_differences_are_marked(stage: Stage) -> None:
    lines = state("diff", stage, "1", "--container", "counts").output.splitlines()
    assert lines[0] == "counts of counter: 1 added, 1 removed, 1 changed"
    assert [line.split()[0] for line in lines[2:]] == ["+", "-", "~"]
    assert "1 → 2" in lines[-1]
    (found,) = json.loads(state("diff", stage, "2", "1", "--container", "counts", "--json").output)
    assert [row["word"] for row in found["removed"]] == ["be"]
    assert [(each["before"]["n"], each["after"]["n"]) for each in found["changed"]] == [(2, 1)]


def test_state_is_exported(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "counts.parquet"
    answer = state("export", stage, file, "--operator", "counter", "--container", "counts")
    assert answer.output == f"60 rows written to {file}\n"
    assert len(pq.read_table(file)) == 60


def test_state_is_rewritten_by_a_function_of_a_module(stage: Stage) -> None:
    where = f"{__name__}:emptied"
    answer = state("rewrite", stage, "--function", where, "--yes")
    assert answer.output == "savepoint 3 of orders\n"
    assert len(Stored.open(stage.location, QUERY, 3).table("counter", "bids")) == 0


def emptied(_: str, container: str, table: object) -> object:
    return table[:0] if container == "bids" else table  # type: ignore[index]


def test_nothing_is_rewritten_before_somebody_agrees(stage: Stage) -> None:
    answer = state("rewrite", stage, "--function", f"{__name__}:emptied")
    assert answer.exit_code == 1
    assert "Go on?" in answer.output
    assert Stored.open(stage.location, QUERY).manifest.id == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("show", "--operator", "splitter"), "no state of an operator 'splitter'; it has state of counter"),
        (("show", "--checkpoint", "9"), "there are 2, 1"),
        (
            ("show", "--operator", "counter", "--key", "word"),
            "--key 'word': write a column and its value, such as word=…",
        ),
        (("show", "--operator", "counter", "--key", "n=1"), "is word; got n"),
        (("show", "--operator", "counter", "--slots", "3-x"), "--slots '3-x': write such as 0-15,20"),
        (("stats", "--container", "totals"), "has no state 'totals'; it has counts"),
        (("rewrite", "--yes", "--function", "seep:nothing"), "--function is 'seep:nothing': "),
        (("rewrite", "--yes", "--function", "seep:__name__"), "which is a str, and no function"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(stage: Stage, words: tuple[str, ...], reason: str) -> None:
    answer = state(words[0], stage, *words[1:])
    assert answer.exit_code == 1
    assert reason in answer.stderr
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1


def test_another_query_is_answered_by_what_there_is(stage: Stage) -> None:
    answer = state("ls", stage, query="payments")
    assert answer.stderr.endswith("has no complete checkpoint of query 'payments'; it has orders\n")


def test_the_storage_may_be_that_of_a_policy_file(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"storage: {{location: {stage.location}}}\n")
    runner = CliRunner()
    answer = runner.invoke(app, ["state", "ls", "--policy", str(file)], catch_exceptions=False)
    assert answer.output.splitlines()[1].startswith("orders")
    assert "--storage, or --policy" in runner.invoke(app, ["state", "ls"], catch_exceptions=False).stderr


@pytest.mark.parametrize("text", ["", "x", "3-", "5-2", "1-2-3", "-1", "0,99999999"])
def test_what_are_no_slots_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--slots"):
        slots_in(text)


def test_a_terminal_gets_lines_around_and_names_are_no_markup() -> None:
    written = io.StringIO()
    show(TextTable(["count[bold]", "n"], [["[/]", "1"]]), Console(file=written, force_terminal=True, color_system=None))
    assert "┃ count[bold] ┃ n ┃" in written.getvalue()
    assert "│ [/]         │ 1 │" in written.getvalue()


# --- dispose ----------------------------------------------------------------------------------------------------------


def files(stage: Stage) -> list[str]:
    return sorted(str(path.relative_to(stage.location)) for path in Path(stage.location).rglob("*") if path.is_file())


def test_a_savepoint_is_removed_by_its_number(stage: Stage) -> None:
    assert "checkpoints of orders: 2; " in state("dispose", stage, 2, "--yes").output
    assert [each["id"] for each in json.loads(state("ls", stage, "--json").output)] == [1]
    assert not [name for name in files(stage) if name.startswith("orders/000000000002/")]


def test_disposing_of_all_leaves_only_the_record_of_that(stage: Stage) -> None:
    assert "checkpoints of orders: 1, 2; " in state("dispose", stage, "--all", "--yes").output
    assert files(stage) == ["orders/runs/000002"]


@pytest.mark.parametrize(
    ("words", "query", "complaint"),
    [
        ([], QUERY, "say what is to be removed: numbers of checkpoints"),
        (["2", "--all"], QUERY, "say what is to be removed: numbers of checkpoints"),
        (["7"], QUERY, "there is no checkpoint 7 of orders; there are: 1, 2"),
        (["1", "2"], QUERY, "no other complete checkpoint would be left"),
        (["--all"], "odrers", "has nothing of query 'odrers'; it has orders"),
    ],
)
def test_what_cannot_be_removed_is_refused_and_stays(
    stage: Stage, words: list[str], query: str, complaint: str
) -> None:
    before = files(stage)
    refused = state("dispose", stage, *words, "--yes", query=query)
    assert refused.exit_code == 1
    assert complaint in refused.stderr
    assert files(stage) == before


def test_nothing_is_removed_without_consent(stage: Stage) -> None:
    before = files(stage)
    command = ["state", "dispose", "--all", "--storage", stage.location, "--query", QUERY]
    assert CliRunner().invoke(app, command, input="n\n").exit_code == 1
    assert files(stage) == before
