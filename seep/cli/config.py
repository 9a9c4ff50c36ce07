"""`seep config`: checks settings files, shows them with defaults, and prints their schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from primitives.errors import UserError
from seep.cli import failures
from seep.cli.failures import told_in_one_line
from seep.config.kinds import ConfigKind
from seep.reports import figures

app = typer.Typer(
    name="config",
    help="Check settings files, show them in full, and print their schema.",
    epilog="Example: seep config check config/small-vms.yaml",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file.", show_default=False)]


@app.command(epilog="Example: seep config check config/*.yaml")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="YAML files.", show_default=False)],
) -> None:
    """Check files: fields, values, and whether policies and providers that they name are there.

    Says for each file what it is and that it is fine, or a line for each problem. Exits with 1 if there is any.
    """
    with told_in_one_line(verbose=False):
        verdicts = [_is_fine(file) for file in files]
        if not all(verdicts):
            raise typer.Exit(failures.USER)


def _is_fine(file: Path) -> bool:
    from seep.config.check import verdict

    try:
        found = verdict(file)
    except UserError as reason:
        typer.echo(str(reason))
        return False
    for problem in found.problems:
        typer.echo(f"{file}: {problem}")
    if not found.problems:
        typer.echo(f"{file}: {found.kind.words}, {figures.of(found.settings, 'setting')}, fine")
    return not found.problems


@app.command(epilog="Example: seep config schema policy --table")
def schema(
    kind: Annotated[ConfigKind, typer.Argument(help="The kind of file.")] = ConfigKind.POLICY,
    table: Annotated[bool, typer.Option("--table", help="As a table of all fields, for people.")] = False,
) -> None:
    """Print the JSON schema of a kind of file, for editors that complete and check YAML."""
    import json

    from seep.config import schema

    typer.echo(schema.table(kind) if table else json.dumps(schema.json_schema(kind), indent=2, ensure_ascii=False))


@app.command(epilog="Example: seep config show config/small-vms.yaml")
def show(file: File) -> None:
    """Print all settings of a file, with defaults, as YAML."""
    with told_in_one_line(verbose=False):
        from seep.config.files import in_full, read_settings

        typer.echo(in_full(read_settings(file)[1]), nl=False)
