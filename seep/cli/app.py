"""The commands of `seep`. Each command imports what it needs when it runs, so that `--help` is fast."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from primitives.errors import DISTRIBUTION
from seep.cli import config, deploy, extensions, report_commands, state
from seep.cli.failures import told_in_one_line
from seep.cli.flags import Flags
from seep.cli.options import Verbose, takes_options
from seep.cli.runs import commands

app = typer.Typer(
    name="seep",
    help="Stateful stream processing that can grow, shrink, heal and rebalance while it runs.",
    epilog="Example: seep wordcount --seconds 30 --chaos kill:counter@12s",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
)
app.add_typer(commands.app)
app.add_typer(config.app)
app.add_typer(deploy.app)
app.add_typer(state.app)
app.add_typer(report_commands.app)
extensions.add_to(app)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"seep {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: seep run examples.wordcount:query --parallelism counter=2 --report run.json")
@takes_options
def run(
    query: Annotated[
        str, typer.Argument(metavar="MODULE:QUERY", help="A query, as module:name or file.py:name.", show_default=False)
    ],
    flags: Flags,
) -> None:
    """Run a query on Spark until its input ends."""
    with told_in_one_line(verbose=flags.verbose):
        from seep.cli.commands import run_query

        run_query(query, flags)


@app.command(epilog="Example: seep wordcount --chaos 'kill:counter@5s,kill:splitter@8s'")
@takes_options
def wordcount(
    window: Annotated[str, typer.Option(metavar="TIME", help="The length of the windows, in event time.")] = "30s",
    *,
    flags: Flags,
) -> None:
    """Count words in windows, and check all counts against an independent count.

    The word-frequency query of the SEEP paper on sentence fragments that it makes itself: 20,000 a second for 30
    seconds, unless told otherwise. Exits with 1 if any count is wrong.
    """
    with told_in_one_line(verbose=flags.verbose):
        from seep.cli.commands import run_wordcount

        run_wordcount(window, flags)


@app.command(epilog="Example: seep doctor --master spark://host:7077")
def doctor(
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master; local[64] if not given.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", help="Number of nodes for which there must be task slots.")] = 4,
    verbose: Verbose = False,
) -> None:
    """Check whether queries can run here: Java, Spark, ports, memory. Exits with 1 if a check fails."""
    with told_in_one_line(verbose=verbose):
        from seep.cli.commands import examine

        examine(master, nodes)
