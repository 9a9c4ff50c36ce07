"""The schema says what the models take, and the page of the documentation says what the schema says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ByteSize, Field

from formats.settings import Section, checked
from formats.yaml_text import parsed
from seep.config.kinds import ConfigKind
from seep.config.policy import PolicyFile
from seep.config.schema import json_schema, rows, rows_of, table
from seep.driver.options import RunOptions

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
POLICY = {row.path: row for row in rows(ConfigKind.POLICY)}


def fields_of(settings: Section, prefix: str = "") -> dict[str, Any]:
    """Path -> default of every field, by looking at the models themselves."""
    found = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        found |= fields_of(value, f"{prefix}{name}.") if isinstance(value, Section) else {f"{prefix}{name}": value}
    return found


def test_every_field_has_a_row() -> None:
    named = {path for path in POLICY if "<name>" in path}
    mappings = {path.split(".<name>")[0] for path in named}
    assert mappings == {"scaling.operators", "backup.operators"}
    expected = fields_of(ConfigKind.POLICY.model()).keys() - mappings
    assert POLICY.keys() - named == expected


@pytest.mark.parametrize("kind", ConfigKind)
def test_every_field_has_a_meaning(kind: ConfigKind) -> None:
    assert [row.path for row in rows(kind) if not row.meaning.endswith(".")] == []


@pytest.mark.parametrize(
    ("path", "type", "default"),
    [
        ("run.epoch", "time", "50ms"),
        ("run.checkpoint", "time", "5s"),
        ("run.nodes", "integer ≥ 1", "none"),
        ("run.buffer_budget", "bytes", "256MiB"),
        ("run.bulk_credit", "bytes", "16MiB"),
        ("run.tls", "true or false or {certificate, key}", "false"),
        ("run.parallelism", "mapping of names to integer > 0", "empty"),
        ("run.rate", "rows per second", "none"),
        ("vm.cpu", "number > 0, ≤ 64", "none"),
        ("vm.memory", "bytes", "none"),
        ("pool.sizing", "`constant` or `adaptive`", "constant"),
        ("pool.settings", "mapping", "empty"),
        ("backup.operators.<name>.strategy", "`upstream` or `replicas` or `storage` or `none`", "upstream"),
        ("migration.gap", "time", "none"),
        ("balance.operators", "list of text", "none"),
        ("scaling.policy", "text", "manual"),
        ("scaling.scale_in.below", "number > 0, < 1", "0.4"),
        ("scaling.operators.<name>.mechanism", "`auto` or `handover` or `backup`", "none"),
    ],
)
def test_types_and_defaults_are_in_plain_words(path: str, type: str, default: str) -> None:
    assert (POLICY[path].type, POLICY[path].default) == (type, default)


class Odd(Section):
    """What no file has yet."""

    must: str = Field(description="a | b")
    ports: list[int] = Field(default_factory=list)
    keep: tuple[int, ...] = (1, 2)
    where: Path = Path("x.pem")
    room: ByteSize = ByteSize(1536)


def test_what_must_be_said_is_marked_and_lists_and_bars_are_readable() -> None:
    found = {row.path: (row.type, row.default, row.meaning) for row in rows_of(Odd.model_json_schema())}
    assert found == {
        "must": ("text", "required", "a \\| b"),
        "ports": ("list of integer", "empty", ""),
        "keep": ("list of integer", "[1, 2]", ""),
        "where": ("file", "x.pem", ""),
        "room": ("bytes", "1536B", ""),
    }


@pytest.mark.parametrize("kind", ConfigKind)
def test_a_schema_is_plain_data_with_a_title(kind: ConfigKind) -> None:
    schema = json.loads(json.dumps(json_schema(kind)))
    assert (schema["title"], schema["additionalProperties"]) == (f"seep {kind.words}", False)


def test_a_schema_lets_editors_accept_times_as_text() -> None:
    assert json_schema(ConfigKind.POLICY)["$defs"]["RunSection"]["properties"]["epoch"]["type"] == ["number", "string"]


def test_the_page_has_the_table_of_all_fields() -> None:
    shown = PAGE.read_text(encoding="utf-8").partition("## All fields of a policy file\n")[2]
    assert shown.rstrip().endswith(table(ConfigKind.POLICY)), (
        "docs/configuration.md is behind; put there what this prints: seep config schema policy --table"
    )


def test_the_examples_of_the_page_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PAGE.parents[1])
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert RunOptions(**names["options"]).scaling.policy == "cpu-threshold"
    (policy,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert checked(PolicyFile, parsed(policy, "page"), "page").scaling.operators["counter"].max == 4
