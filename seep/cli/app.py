"""The commands of `seep`. Each command imports what it needs when it runs, so that `--help` is fast."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from primitives.errors import DISTRIBUTION
from seep.cli import config, deploy, extensions, report_commands, state
from seep.cli.failures import told_in_one_line
from seep.cli.flags import Flags
from seep.cli.options import Verbose, takes_options
from seep.logs.levels import LogLevel

app = typer.Typer(
    name="seep",
    help="Stateful stream processing that can grow, shrink, heal and rebalance while it runs.",
    epilog="Example: seep wordcount --seconds 30 --chaos kill:counter@12s",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
)
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


@app.command(epilog="Example: seep runs")
def runs() -> None:
    """List your runs on this machine."""
    with told_in_one_line(verbose=False):
        from seep.cli.control import show_runs

        show_runs(Console())


_RUN = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its query's name.", show_default=False)]


@app.command(epilog="Example: seep savepoint orders")
def savepoint(run: _RUN) -> None:
    """Take a savepoint of the whole query of a run, kept until it is disposed of."""
    with told_in_one_line(verbose=False):
        from seep.cli.control import take_savepoint

        take_savepoint(run, Console())


@app.command(epilog="Example: seep migrate orders counter --strategy fluid --to 4")
def migrate(
    run: _RUN,
    operator: Annotated[
        str, typer.Argument(metavar="OPERATOR", help="The operator whose slots move.", show_default=False)
    ],
    to: Annotated[int, typer.Option(metavar="N", min=1, help="Number of instances at the end.", show_default=False)],
    strategy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="all-at-once, fluid, batched or optimised; the run's setting if not given."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="SLOTS", help="Number of slots in each step, if batched.")
    ] = None,
    gap: Annotated[str | None, typer.Option(metavar="TIME", help="Time between steps, such as 200ms.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the run at which it begins.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it is done; it continues if you stop waiting.")] = True,
) -> None:
    """Change the number of an operator's instances in a run, by moving its slots in steps."""
    with told_in_one_line(verbose=False):
        from seep.cli.control import migrate

        migrate(run, operator, to, Console(), wait=wait, strategy=strategy, batch=batch, gap=gap, at=at)


@app.command(epilog="Example: seep story run.json --instance 'counter[1]'")
def story(
    of: Annotated[
        str,
        typer.Argument(metavar="RUN|FILE.json", help="A run, by id or query, or a report.", show_default=False),
    ],
    instance: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only events of an instance, such as counter[1].")
    ] = None,
    decision: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the decision with this number.")
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Only changes that took effect at an epoch, or the last one before it."),
    ] = None,
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Also the last messages and answers of machines, as far as they are known."),
    ] = False,
) -> None:
    """Tell what was decided, moved and lost in a run, with causes and results."""
    with told_in_one_line(verbose=False):
        from seep.cli.story import tell

        tell(of, Console(), instance=instance, decision=decision, epoch=epoch, messages=messages)


@app.command(epilog="Example: seep logs orders --follow --level warning")
def logs(
    run: _RUN,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until the run ends.")] = False,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only lines of a node, or about it: n2.")] = None,
    level: Annotated[LogLevel, typer.Option(help="Only lines of this level or above.")] = LogLevel.INFO,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show the newest log lines of a run: of its driver, its events and its nodes."""
    with told_in_one_line(verbose=False):
        from seep.cli.logs import show_logs

        show_logs(run, follow=follow, node=node, level=level, as_json=as_json)


@app.command(epilog="Example: seep top orders")
def top(
    run: _RUN,
    once: Annotated[bool, typer.Option("--once", help="Print the run as it is now, and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, at intervals until the run ends.")
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, max=20.0, help="Seconds between two looks.")
    ] = 1.0,
) -> None:
    """Show a run live, and what is wrong with it.

    Its operators, instances, nodes, decisions, checkpoints, VMs and events; q leaves, and the run goes on.
    """
    with told_in_one_line(verbose=False):
        from seep.cli.top import show_top

        show_top(run, once=once, as_json=as_json, interval=interval)


@app.command(epilog="Example: seep stop orders --savepoint")
def stop(
    run: _RUN,
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Take a savepoint first, to continue from.")] = False,
) -> None:
    """Stop a run at once; its input does not end, so another run can continue."""
    with told_in_one_line(verbose=False):
        from seep.cli.control import stop_run

        stop_run(run, savepoint, Console())


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
