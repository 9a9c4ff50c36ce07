"""The commands that watch and operate a run; each has a name of a run, or the address of its dashboard."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from seep.cli.failures import told_in_one_line
from seep.cli.options import takes_options
from seep.cli.runs.place import OperatorName, RunName, RunPlace
from seep.logs.levels import LogLevel

app = typer.Typer(rich_markup_mode=None)

_MaybeOperator = Annotated[
    str | None, typer.Argument(metavar="OPERATOR", help="The operator; all if not given.", show_default=False)
]
_Node = Annotated[str | None, typer.Argument(metavar="NODE", help="The node, such as n2.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="The answer as one JSON object, for programs.")]
_JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
_To = Annotated[
    int, typer.Option("--to", metavar="N", min=1, help="Number of instances at the end.", show_default=False)
]
_Timeout = Annotated[str, typer.Option(metavar="TIME", help="The longest wait with --wait; the run goes on after it.")]


@app.command(epilog="Example: seep runs")
def runs(as_json: _Json = False) -> None:
    """List your runs on this machine."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.control import show_runs

        show_runs(Console(), as_json=as_json)


# -- watching ----------------------------------------------------------------------------------------------------------


@app.command(epilog="Example: seep status orders || page-me")
@takes_options
def status(run: RunName = None, *, place: RunPlace, as_json: _Json = False) -> None:
    """Say in a few lines how a run is: phase, rates, latency, and what is wrong.

    Exits with 0 if nothing is wrong, with 1 if something is, if the run has failed or if there is no such run, and with
    2 if it cannot be reached or the command line cannot be read.
    """
    with told_in_one_line(verbose=False):
        from seep.cli.runs.top import show_status

        show_status(place.opened(run).client, as_json=as_json)


@app.command(epilog="Example: seep top orders")
@takes_options
def top(
    run: RunName = None,
    *,
    place: RunPlace,
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
        from seep.cli.runs.top import show_top

        show_top(place.opened(run).client, once=once, as_json=as_json, interval=interval)


@app.command(epilog="Example: seep logs orders --follow --level warning")
@takes_options
def logs(
    run: RunName = None,
    *,
    place: RunPlace,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until the run ends.")] = False,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only lines of a node, or about it: n2.")] = None,
    level: Annotated[LogLevel, typer.Option(help="Only lines of this level or above.")] = LogLevel.INFO,
    as_json: _JsonLines = False,
) -> None:
    """Show the newest log lines of a run: of its driver, its events and its nodes."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.logs import show_logs

        show_logs(place.opened(run).client, follow=follow, node=node, level=level, as_json=as_json)


@app.command(epilog="Example: seep story run.json --instance 'counter[1]'")
@takes_options
def story(
    of: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|FILE.json",
            help="A run, by id or query, or a report; may be left out with --url.",
            show_default=False,
        ),
    ] = None,
    *,
    place: RunPlace,
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
    as_json: Annotated[
        bool, typer.Option("--json", help="All events and messages as one JSON object, for programs.")
    ] = False,
) -> None:
    """Tell what was decided, moved and lost in a run, with causes and results."""
    with told_in_one_line(verbose=False):
        from seep.cli.display.output import print_json
        from seep.cli.runs.story import recorded, tell

        found = recorded(place, of)
        if as_json:
            print_json(found)
            return
        tell(found, Console(), instance=instance, decision=decision, epoch=epoch, messages=messages)


@app.command(epilog="Example: seep dashboard run.json --open")
def dashboard(
    of: Annotated[
        str,
        typer.Argument(metavar="RUN|FILE.json", help="A run, by id or query, or a report.", show_default=False),
    ],
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port to serve it on; 0 for any free one.")
    ] = 0,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    opened: Annotated[bool, typer.Option("--open", help="Open it in a browser here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The link as one JSON object, for programs.")] = False,
) -> None:
    """Print a link to the live page of a run, which logs a browser in once; or show a finished run by its report.

    A run without a page of its own, and a report, are served by this command until Ctrl-C.
    """
    with told_in_one_line(verbose=False):
        from seep.cli.runs.dashboard import show_dashboard
        from seep.dashboard.settings import DashboardSettings

        show_dashboard(of, DashboardSettings(port=port, host=host), open_browser=opened, as_json=as_json)


# -- acting ------------------------------------------------------------------------------------------------------------


@app.command(epilog="Example: seep scale orders counter --to 4 --wait")
@takes_options
def scale(
    run: RunName = None,
    operator: OperatorName = None,
    *,
    to: _To,
    place: RunPlace,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is done; it continues if you stop waiting.")
    ] = False,
    timeout: _Timeout = "10min",
    as_json: _Json = False,
) -> None:
    """Scale an operator of a run, as if a policy had decided it.

    With --wait, exits with 1 if the operator does not get this number of instances; --json then prints the event that
    has ended the scaling.
    """
    with told_in_one_line(verbose=False):
        from seep.cli.runs import control

        patience = control.longest(wait, timeout)
        client, (operator,) = place.opened(run, operator, wants=["OPERATOR"])
        control.scale(client, operator, to, patience, as_json=as_json)


@app.command(epilog="Example: seep migrate orders counter --strategy fluid --to 4")
@takes_options
def migrate(
    run: RunName = None,
    operator: OperatorName = None,
    *,
    to: _To,
    place: RunPlace,
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
    as_json: _Json = False,
) -> None:
    """Change the number of an operator's instances in a run, by moving its slots in steps."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs import control

        client, (operator,) = place.opened(run, operator, wants=["OPERATOR"])
        chosen = {"strategy": strategy, "batch": batch, "gap": gap, "at": at}
        control.migrate(client, operator, to, Console(), wait=wait, as_json=as_json, **chosen)


@app.command(epilog="Example: seep balance orders counter")
@takes_options
def balance(run: RunName = None, operator: OperatorName = None, *, place: RunPlace, as_json: _Json = False) -> None:
    """Balance the load of an operator's instances in a run, in the background, by moving slots."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs import control

        client, (operator,) = place.opened(run, operator, wants=["OPERATOR"])
        control.act(client, "balance", f"{operator} is being balanced", as_json=as_json, operator=operator)


@app.command(epilog="Example: seep drain orders n2")
@takes_options
def drain(run: RunName = None, node: _Node = None, *, place: RunPlace, as_json: _Json = False) -> None:
    """Move everything on a node of a run elsewhere and return its VM, in the background."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs import control

        client, (node,) = place.opened(run, node, wants=["NODE"])
        control.act(client, "drain", f"{node} is being drained", as_json=as_json, node=node)


@app.command(epilog="Example: seep checkpoint orders counter")
@takes_options
def checkpoint(
    run: RunName = None, operator: _MaybeOperator = None, *, place: RunPlace, as_json: _Json = False
) -> None:
    """Ask a run for checkpoints now, of one operator or of all, which are backed up on nodes.

    For state that outlives the run, take a savepoint.
    """
    with told_in_one_line(verbose=False):
        from seep.cli.runs import control

        client, operators = place.opened(run, operator, more=True)
        control.take_checkpoint(client, operators, as_json=as_json)


@app.command(epilog="Example: seep savepoint orders")
@takes_options
def savepoint(run: RunName = None, *, place: RunPlace, as_json: _Json = False) -> None:
    """Take a savepoint of the whole query of a run, kept until it is disposed of."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.control import take_savepoint

        take_savepoint(place.opened(run).client, as_json=as_json)


@app.command(epilog="Example: seep finish orders --wait")
@takes_options
def finish(
    run: RunName = None,
    *,
    place: RunPlace,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run is over; exits with 1 if it has failed.")
    ] = False,
    timeout: _Timeout = "10min",
    as_json: _Json = False,
) -> None:
    """End the input of a run; rows that were read are still processed and committed.

    With --wait, --json prints the last status of the run.
    """
    with told_in_one_line(verbose=False):
        from seep.cli.runs import control

        patience = control.longest(wait, timeout)
        control.finish(place.opened(run).client, patience, as_json=as_json)


@app.command(epilog="Example: seep stop orders --savepoint")
@takes_options
def stop(
    run: RunName = None,
    *,
    place: RunPlace,
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Take a savepoint first, to continue from.")] = False,
    as_json: _Json = False,
) -> None:
    """Stop a run at once; its input does not end, so another run can continue."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.control import stop_run

        stop_run(place.opened(run).client, savepoint, as_json=as_json)
