"""`seep config`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from seep.cli.app import app
from seep.config.kinds import ConfigKind
from seep.config.schema import table

CONFIG = Path(__file__).parents[2] / "config"


def config(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["config", *map(str, words)], catch_exceptions=False)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "wrong.yaml"
    file.write_text("run: {epock: 1s}\npool: {size: few}\n")
    return file


def test_a_file_that_is_right_is_said_to_be_fine(tmp_path: Path) -> None:
    file = tmp_path / "right.yaml"
    file.write_text("run: {epoch: 20ms, nodes: 3}")
    answer = config("check", file)
    assert (answer.exit_code, answer.output) == (0, f"{file}: policy file, 2 settings, fine\n")


def test_each_problem_is_a_line_with_the_path_of_its_field(wrong: Path) -> None:
    answer = config("check", wrong)
    assert answer.exit_code == 1
    first, second = answer.output.splitlines()
    assert first.startswith(f"{wrong}: run.epock is unknown; known are epoch, ")
    assert second.startswith(f"{wrong}: pool.size is 'few': ")


def test_all_files_are_looked_at_whatever_is_wrong_with_one(wrong: Path, tmp_path: Path) -> None:
    answer = config("check", wrong, tmp_path / "none.yaml", CONFIG / "small-vms.yaml")
    assert answer.exit_code == 1
    assert f"{tmp_path / 'none.yaml'} cannot be read: No such file or directory\n" in answer.output
    assert answer.output.endswith(" settings, fine\n")


def test_a_file_is_shown_with_its_defaults(tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text("run: {epoch: 20ms}")
    shown = yaml.safe_load(config("show", file).output)
    assert (shown["run"]["epoch"], shown["run"]["window"], shown["scaling"]["policy"]) == (0.02, 16, "manual")


def test_a_wrong_file_is_not_shown(wrong: Path) -> None:
    answer = config("show", wrong)
    assert answer.exit_code == 1
    assert f"error: policy file {wrong}: run.epock is unknown" in answer.stderr


def test_the_schema_is_json() -> None:
    assert json.loads(config("schema").output)["title"] == "seep policy file"


@pytest.mark.parametrize("kind", ConfigKind)
def test_the_table_is_printed_for_each_kind(kind: ConfigKind) -> None:
    answer = config("schema", str(kind), "--table")
    assert (answer.exit_code, answer.output) == (0, table(kind) + "\n")


def test_another_kind_cannot_be_asked_for() -> None:
    answer = config("schema", "azure")
    assert answer.exit_code == 2
    assert "'azure' is not one of 'policy', 'ec2', 'gcp'" in answer.output
