"""`seep state`: shows, compares, exports, rewrites and disposes of checkpoints, savepoints and live state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from seep.cli.failures import told_in_one_line
from seep.cli.options import Verbose, Yes, takes_options
from seep.cli.runs.place import OperatorName, RunName, RunPlace

app = typer.Typer(
    name="state",
    help="Look inside checkpoints and running queries: list, show, measure, compare, export, rewrite, dispose.",
    epilog="Example: seep state show --storage /data/seep --query orders --operator counter --key word=be",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Storage = Annotated[
    str | None,
    typer.Option(metavar="LOCATION", help="Where checkpoints are, such as s3://bucket/seep.", show_default=False),
]
Policy = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml", help="A policy file with the storage, if --storage is not given.", show_default=False
    ),
]
Query = Annotated[
    str, typer.Option(metavar="NAME", help="The name of the query, or of a run of it.", show_default=False)
]
Checkpoint = Annotated[
    str, typer.Option(metavar="latest|ID|live", help="The checkpoint; or live, for the running query.")
]
Operator = Annotated[str | None, typer.Option(metavar="O", help="Only one operator.", show_default=False)]
TheOperator = Annotated[str, typer.Option(metavar="O", help="The operator.", show_default=False)]
Container = Annotated[
    str | None, typer.Option(metavar="C", help="Only one container of the operator.", show_default=False)
]
Slots = Annotated[
    str | None, typer.Option(metavar="0-15,20", help="Only these slots; others are not read.", show_default=False)
]
Answer = Annotated[bool, typer.Option("--json", help="The answer as one JSON object, for programs.")]
Limit = Annotated[int, typer.Option(metavar="N", min=0, help="The most entries to show.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The query and the storage of checkpoints."""

    query: Query
    storage: Storage = None
    policy: Policy = None


@app.command(epilog="Example: seep state ls --storage /data/seep --query orders")
def ls(
    storage: Storage = None,
    policy: Policy = None,
    query: Annotated[str | None, typer.Option(metavar="NAME", help="The name of a query.", show_default=False)] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List the queries in a store, or the checkpoints of one."""
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        where = commands.storage_of(storage, policy)
        commands.list_queries(where, as_json) if query is None else commands.list_checkpoints(where, query, as_json)


@app.command(epilog="Example: seep state show --storage /data/seep --query orders --operator counter --key word=be")
@takes_options
def show(
    where: Where,
    checkpoint: Checkpoint = "latest",
    operator: Operator = None,
    container: Container = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only one key; repeat it for each column.", show_default=False),
    ] = None,
    slots: Slots = None,
    limit: Limit = 20,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the state in a checkpoint; with --operator, keys and values."""
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        with commands.stored(where, checkpoint, operator) as found:
            if operator is None:
                commands.show_checkpoint(found, as_json)
            else:
                commands.show_rows(found, operator, container, key or [], slots, limit, as_json)


@app.command(epilog="Example: seep state get orders counter be")
@takes_options
def get(
    run: RunName = None,
    operator: OperatorName = None,
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="The key: a value for each of its columns.", show_default=False),
    ] = None,
    *,
    place: RunPlace,
    container: Container = None,
    as_json: Answer = False,
) -> None:
    """Look up a key in the state of a current run. Exits with 1 if there is nothing for it."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.state import show_key

        client, (operator, *values) = place.opened(run, operator, *(key or ()), wants=["OPERATOR"], more=True)
        if not values:
            raise typer.BadParameter("a value for each key column must be given", param_hint="KEY")
        show_key(client, operator, values, container, as_json=as_json)


@app.command(epilog="Example: seep state rows orders counter --limit 10")
@takes_options
def rows(
    run: RunName = None,
    operator: OperatorName = None,
    *,
    place: RunPlace,
    container: Container = None,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Number of rows to leave out before.")] = 0,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=500, help="The most rows to show.")] = 50,
    as_json: Answer = False,
) -> None:
    """Page through the state of an operator of a current run."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.state import show_rows

        client, (operator,) = place.opened(run, operator, wants=["OPERATOR"])
        show_rows(client, operator, container, offset, limit, as_json=as_json)


@app.command(epilog="Example: seep state sql orders counter 'select word, n from counts order by n desc limit 5'")
@takes_options
def sql(
    run: RunName = None,
    operator: OperatorName = None,
    select: Annotated[
        str | None, typer.Argument(metavar="SELECT", help="The SQL query, in quotes.", show_default=False)
    ] = None,
    *,
    place: RunPlace,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="The most rows to show.")] = 100,
    as_json: Answer = False,
) -> None:
    """Query the state of an operator of a current run with SQL (DuckDB's); each container is a table of its name."""
    with told_in_one_line(verbose=False):
        from seep.cli.runs.state import show_query

        client, (operator, query) = place.opened(run, operator, select, wants=["OPERATOR", "SELECT"])
        show_query(client, operator, query, limit, as_json=as_json)


@app.command(epilog="Example: seep state stats --storage /data/seep --query orders --operator counter")
@takes_options
def stats(
    where: Where,
    checkpoint: Checkpoint = "latest",
    operator: Operator = None,
    container: Container = None,
    limit: Limit = 5,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure the rows and bytes of slots, and how evenly they are spread. Reads all of the state."""
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        with commands.stored(where, checkpoint, operator) as found:
            commands.show_stats(found, operator, container, limit, as_json)


@app.command(epilog="Example: seep state diff 12 latest --storage /data/seep --query orders")
@takes_options
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A checkpoint.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another one, latest or live.")] = "latest",
    *,
    where: Where,
    operator: Operator = None,
    container: Container = None,
    limit: Limit = 20,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare two checkpoints: keys that were added, removed, or have other values."""
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        with (
            commands.stored(where, before, operator) as old,
            commands.stored(where, after, operator) as new,
        ):
            commands.show_differences(old, new, operator, container, limit, as_json)


@app.command(epilog="Example: seep state export counts.parquet --storage /data/seep --query orders --operator counter")
@takes_options
def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, .parquet or .csv.", show_default=False)],
    where: Where,
    operator: TheOperator,
    checkpoint: Checkpoint = "latest",
    container: Container = None,
    slots: Slots = None,
    verbose: Verbose = False,
) -> None:
    """Write state to a Parquet or CSV file."""
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        with commands.stored(where, checkpoint, operator) as found:
            commands.export_rows(found, operator, container, slots, path)


@app.command(epilog="Example: seep state rewrite --function fixes:cents --storage /data/seep --query orders")
@takes_options
def rewrite(
    where: Where,
    function: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="Given operator, container, table: a table.", show_default=False)
    ],
    checkpoint: Checkpoint = "latest",
    operator: Annotated[
        list[str] | None,
        typer.Option(metavar="O", help="State of these operators only; repeat it for others.", show_default=False),
    ] = None,
    yes: Yes = False,
    verbose: Verbose = False,
) -> None:
    """Make a new savepoint from a checkpoint, with its state changed by a function of yours.

    A current run of the query cannot add checkpoints any more, as if a new run had begun.
    """
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        if not yes:
            typer.confirm(
                f"No run of {where.query} can add checkpoints after this until it is started anew. Go on?", abort=True
            )
        commands.rewrite_state(where, function, checkpoint, operator)


@app.command(epilog="Example: seep state dispose 12 13 --storage /data/seep --query orders")
@takes_options
def dispose(
    checkpoint: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="Checkpoints and savepoints.", show_default=False)
    ] = None,
    *,
    where: Where,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything of the query, including files that a failed run has left.")
    ] = False,
    yes: Yes = False,
    verbose: Verbose = False,
) -> None:
    """Remove checkpoints and savepoints, or everything of a query, from the storage.

    With --all, a current run of the query cannot add checkpoints any more, as if a new run had begun.
    """
    with told_in_one_line(verbose=verbose):
        from seep.cli import state_commands as commands

        commands.check_disposed(checkpoint or [], everything)
        if not yes:
            what = "Everything" if everything else f"Checkpoint {', '.join(map(str, checkpoint or []))}"
            typer.confirm(f"{what} of {where.query} will be removed for good. Go on?", abort=True)
        commands.dispose_of(where, checkpoint or [], everything)
