"""The commands of `seep lrb`. Each imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lrb import rate_command, run_command
from seep.cli.failures import told_in_one_line
from seep.cli.options import Verbose

app = typer.Typer(
    name="lrb",
    help="Linear Road: traffic on expressways, their tolls and accidents.",
    epilog="Example: seep lrb generate --xways 2 --minutes 60 --out traffic.csv",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog="Example: seep lrb generate --xways 2 --minutes 60 --out traffic.csv --history history.csv")
def generate(
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .csv or .parquet.", show_default=False)],
    xways: Annotated[int, typer.Option(metavar="L", min=1, help="Number of expressways.")] = 1,
    minutes: Annotated[int, typer.Option(metavar="N", min=1, max=180, help="Minutes of traffic.")] = 180,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Equal seeds give equal traffic.")] = 1,
    rate: Annotated[float, typer.Option(metavar="FACTOR", min=0, help="Traffic relative to the benchmark's.")] = 1.0,
    balances: Annotated[
        float, typer.Option(metavar="PART", min=0, max=1, help="Share of reports with a balance query.")
    ] = 0.01,
    expenditures: Annotated[
        float, typer.Option(metavar="PART", min=0, max=1, help="Share of reports with an expenditure query.")
    ] = 0.001,
    travel_times: Annotated[
        float,
        typer.Option(
            metavar="PART", min=0, max=1, help="Share of reports with a travel time query, which is not answered."
        ),
    ] = 0.0,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="File to write with past tolls of all vehicles."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    verbose: Verbose = False,
) -> None:
    """Make traffic: the ramp of the benchmark over 3 hours, or its first minutes, with jams, accidents and queries."""
    with told_in_one_line(verbose=verbose):
        from lrb.commands import generate_traffic
        from lrb.generator.settings import TrafficSettings

        shares = {"balances": balances, "expenditures": expenditures, "travel_times": travel_times}
        settings = TrafficSettings(xways=xways, seconds=60 * minutes, seed=seed, rate=rate, **shares)
        generate_traffic(settings, out, history, quiet=quiet)


@app.command(epilog="Example: seep lrb validate --input traffic.csv --out results")
def validate(
    input: Annotated[Path, typer.Option("--input", metavar="FILE", help="The traffic.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The four outputs.", show_default=False)],
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Past tolls; computed as in the spec if not given."),
    ] = None,
    lateness: Annotated[int, typer.Option(metavar="SECONDS", min=0, help="The lateness that the run allowed.")] = 0,
    live: Annotated[bool, typer.Option("--live", help="Accept balances of any of the last 60 seconds.")] = False,
    verbose: Verbose = False,
) -> None:
    """Check outputs against a plain reference program, and check response times. Exits with 1 if any is wrong."""
    with told_in_one_line(verbose=verbose):
        from lrb.commands import validate_outputs

        validate_outputs(input, out, history, lateness=lateness, live=live)


app.command(epilog=run_command.EPILOG)(run_command.run)
app.command(epilog=rate_command.EPILOG)(rate_command.rate)
