"""The commands of `seep nexmark`. Each imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nexmark import run_command
from nexmark.model_flags import ModelFlags
from seep.cli.failures import told_in_one_line
from seep.cli.flags import RateProfile
from seep.cli.options import Verbose, takes_options

app = typer.Typer(
    name="nexmark",
    help="NEXMark: persons, auctions and bids, and queries on them.",
    epilog="Example: seep nexmark generate --events 1000000 --out events.parquet",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog="Example: seep nexmark generate --events 1000000 --out-of-order 100 --out events.parquet")
@takes_options
def generate(
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A .parquet log to write, or a folder with --rhino.", show_default=False),
    ],
    events: Annotated[int, typer.Option(metavar="N", min=1, help="Number of events.")] = 100_000,
    rate: Annotated[int, typer.Option(metavar="N", min=1, help="Events per second of arrival, at most.")] = 10_000,
    rate_profile: Annotated[RateProfile, typer.Option(help="How the rate changes.")] = RateProfile.STEADY,
    rate_period: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Period of the changes.")] = 60.0,
    held_back: Annotated[
        float, typer.Option(metavar="PART", min=0, max=1, help="Share of events that come up to 3 s late.")
    ] = 0.0,
    text: Annotated[bool, typer.Option(help="Write names, descriptions and other texts.")] = True,
    filler: Annotated[bool, typer.Option(help="Fill records up to their sizes.")] = True,
    sizes: Annotated[str, typer.Option(metavar="P,A,B", help="Bytes of persons, auctions and bids.")] = "200,500,100",
    rhino: Annotated[bool, typer.Option("--rhino", help="Write binary records of 206, 269 and 32 bytes.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    *,
    model: ModelFlags,
    verbose: Verbose = False,
) -> None:
    """Make a log of events by the reference model; equal options give equal events."""
    with told_in_one_line(verbose=verbose):
        from nexmark.commands import generate_log, generate_records, sizes_of
        from seep.rows.rate import Profile

        profile = {"profile": Profile(rate_profile.value), "period": rate_period}
        texts = {"text": text, "filler": filler, **sizes_of(sizes)}
        settings = model.settings(rate=rate, held_back=held_back, **profile, **texts)
        make = generate_records if rhino else generate_log
        make(settings, events, out, quiet=quiet)


@app.command()
def queries() -> None:
    """List the queries."""
    from nexmark.commands import show_queries

    show_queries()


app.command(epilog=run_command.EPILOG)(run_command.run)
