"""Commands that other packages bring: found by their entry points, and one that is broken costs only itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from seep.cli import extensions


def installed(where: Path, entry: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution `orders` with a module `orders_cli`, as pip would leave it there."""
    about = where / "orders-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: orders\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{extensions.GROUP}]\n{entry}\n")
    (where / "orders_cli.py").write_text(source)
    monkeypatch.syspath_prepend(str(where))
    monkeypatch.delitem(__import__("sys").modules, "orders_cli", raising=False)


def app_with_extensions() -> typer.Typer:
    app = typer.Typer(name="seep")
    app.add_typer(typer.Typer(name="state"))
    extensions.add_to(app)
    return app


GOOD = """
import typer
app = typer.Typer()
@app.command()
def count(): typer.echo("7 orders")
@app.command()
def other(): ...
"""


def test_a_package_adds_commands_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "orders = orders_cli:app", GOOD, monkeypatch)
    assert CliRunner().invoke(app_with_extensions(), ["orders", "count"]).output == "7 orders\n"


@pytest.mark.parametrize(
    ("entry", "source", "told"),
    [
        ("orders = orders_cli:app", "import no_such_module", "cannot be loaded: ModuleNotFoundError"),
        ("orders = orders_cli:app", "app = 1", "is a int; it has to be a typer.Typer"),
        ("state = orders_cli:app", GOOD, "there is a command of that name already"),
    ],
)
def test_a_broken_one_is_named_and_costs_only_itself(
    entry: str,
    source: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed(tmp_path, entry, source, monkeypatch)
    app = app_with_extensions()
    said = capsys.readouterr().err
    assert told in said
    assert "orders" in said
    assert {group.name for group in app.registered_groups} >= {"lrb", "nexmark"}
