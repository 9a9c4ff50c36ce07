"""`seep nexmark run`, with all the options of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from formats.durations import micros
from nexmark.model_flags import ModelFlags
from primitives.errors import UserError
from seep.cli.failures import told_in_one_line
from seep.cli.flags import Flags
from seep.cli.options import takes_options

EPILOG = "Example: seep nexmark run Q5 --input events.parquet --out result.parquet --chaos kill:hot-items-parts@5s"

_SIZE = {"metavar": "TIME", "show_default": False}


@takes_options
def run(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Q0 to Q12, NBQ5, …; see seep nexmark queries.")],
    input: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="A log of events.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Parquet file for the result.", show_default=False)
    ] = None,
    size: Annotated[str | None, typer.Option(help="The length of the query's windows, such as 12h.", **_SIZE)] = None,
    slide: Annotated[str | None, typer.Option(help="Time between the starts of windows, such as 1s.", **_SIZE)] = None,
    gap: Annotated[str | None, typer.Option(help="The pause that ends a session, such as 10s.", **_SIZE)] = None,
    event_rate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Live events in a second of event time; --rate if not given.",
            show_default=False,
        ),
    ] = None,
    on_disk: Annotated[bool, typer.Option("--on-disk", help="Keep state on disk, if the query can.")] = False,
    partitions: Annotated[int, typer.Option(metavar="N", min=1, help="Partitions of the source of live events.")] = 1,
    *,
    model: ModelFlags,
    flags: Flags,
) -> None:
    """Run a query on a log, or on live events that are made during the run.

    With --input, the run ends with the log and writes the result, ordered by all columns. Without it, --rate sets the
    rate of events: 10,000 a second, for 30 s, if not given. The rate counts all events, also if the query reads only
    some kinds of them.
    """
    with told_in_one_line(verbose=flags.verbose):
        from nexmark.driver import RATE, LiveEvents, query_named, run_live, run_log

        chosen = query_named(query)
        sizes: dict[str, Any] = dict(sizes_of(chosen.build, {"size": size, "slide": slide, "gap": gap}))
        if on_disk:
            check_known(chosen.build, "on_disk", "--on-disk: this query keeps its state in memory")
            sizes["on_disk"] = True
        if input is None:
            settings = model.settings(rate=event_rate or RATE, text=True, filler=False)
            run_live(chosen, LiveEvents(model=settings, rate=event_rate, partitions=partitions), out, sizes, flags)
        elif out is None:
            raise UserError("give --out FILE: the file where the result of --input goes")
        else:
            run_log(chosen, input, out, sizes, flags)


def sizes_of(build: Callable[..., Any], given: dict[str, str | None]) -> dict[str, int]:
    """Returns the given lengths, in milliseconds. Raises UserError for one that the query does not have."""
    sizes = {name: _milliseconds(name, text) for name, text in given.items() if text is not None}
    for name in sizes:
        check_known(build, name, f"--{name}: this query has no such length")
    return sizes


def check_known(build: Callable[..., Any], name: str, problem: str) -> None:
    """Raises UserError unless the query's function has this keyword."""
    if name not in inspect.signature(build).parameters:
        raise UserError(problem)


def _milliseconds(name: str, text: str) -> int:
    try:
        length = micros(text)
    except (UserError, ValueError) as reason:
        raise UserError(f"--{name}: {reason}") from None
    if length <= 0 or length % 1_000:
        raise UserError(f"--{name}: {text} is not a whole number of milliseconds above 0")
    return length // 1_000
