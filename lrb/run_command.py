"""`seep lrb run`, with all the options of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from primitives.errors import UserError
from seep.cli.failures import told_in_one_line
from seep.cli.flags import Flags
from seep.cli.options import takes_options

EPILOG = "Example: seep lrb run --input traffic.csv --out results --chaos kill:toll_calculator@5s"


@takes_options
def run(
    input: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="File with traffic.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the outputs.", show_default=False)] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Past tolls; computed as in the spec if not given.", show_default=False),
    ] = None,
    lateness: Annotated[
        int, typer.Option(metavar="SECONDS", min=0, help="How much older tuples may be than one before them.")
    ] = 0,
    xways: Annotated[
        int | None,
        typer.Option(metavar="L", min=1, help="Make live traffic on L expressways.", show_default=False),
    ] = None,
    speed: Annotated[float, typer.Option(metavar="X", min=0.01, help="Seconds of live traffic in a second.")] = 1.0,
    minutes: Annotated[int, typer.Option(metavar="N", min=1, max=180, help="Minutes of live traffic.")] = 180,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Equal seeds give equal live traffic.")] = 1,
    check: Annotated[bool, typer.Option("--check", help="Compare all answers to live traffic with the reference.")] = (
        False
    ),
    *,
    flags: Flags,
) -> None:
    """Run the query on the traffic of a file, or on live traffic.

    Writes tolls.csv, accidents.csv, balances.csv and expenditures.csv, ordered by time, vehicle and query. Malformed
    tuples of a file are left out, and listed in dead-letters.csv. For live traffic it prints the response times; a
    tuple is due at its second, by the clock of the run.
    """
    with told_in_one_line(verbose=flags.verbose):
        from lrb.driver import LiveTraffic, run_file, run_live

        if (input is None) == (xways is None):
            raise UserError("give --input FILE for the traffic of a file, or --xways L for live traffic")
        if xways is not None:
            run_live(
                LiveTraffic(xways=xways, speed=speed, minutes=minutes, seed=seed, check=check), out, history, flags
            )
        elif out is None:
            raise UserError("give --out DIR: the folder where the outputs of --input go")
        elif input is not None:
            run_file(input, out, history, lateness, flags)
