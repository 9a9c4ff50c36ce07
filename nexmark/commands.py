"""Implements the commands of `seep nexmark` apart from `run`."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pyarrow.parquet as pq
import typer

from formats.files import whole_file
from nexmark.generator import EventSettings
from nexmark.log import log
from nexmark.queries import QUERIES
from nexmark.rhino import write_records
from nexmark.schema import LOG
from primitives.errors import UserError
from seep.cli.display.progress import ProgressBar, with_bar
from seep.reports import figures


def generate_log(settings: EventSettings, count: int, out: Path, *, quiet: bool) -> None:
    """Writes a log; the file appears, complete, when all events are written."""
    if out.suffix != ".parquet":
        raise UserError(f"{out} is to be a log, which is Parquet; let its name end with .parquet")
    begin = perf_counter()
    with whole_file(out) as partial, pq.ParquetWriter(partial, LOG) as writer:
        for batch in with_bar(log(settings, count), "events", count, quiet=quiet):
            writer.write_batch(batch)
    _tell(out, count, begin, quiet=quiet)


def generate_records(settings: EventSettings, count: int, out: Path, *, quiet: bool) -> None:
    """Writes the records of each kind to their own file, in the blocks that Rhino's Kafka source reads."""
    begin = perf_counter()
    with ProgressBar("events", quiet=quiet) as bar:
        write_records(settings, count, out, bar.reach)
    _tell(out, count, begin, quiet=quiet)


def _tell(out: Path, count: int, begin: float, *, quiet: bool) -> None:
    if not quiet:
        typer.echo(f"{out}: {figures.of(count, 'event')}, in {figures.time(perf_counter() - begin)}")


def sizes_of(text: str) -> dict[str, int]:
    """Parses the sizes of records; returns them by the names of the settings.

    >>> sizes_of("206,269,32")
    {'person_bytes': 206, 'auction_bytes': 269, 'bid_bytes': 32}
    """
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise UserError(f"--sizes {text!r}: write three numbers of bytes, such as 206,269,32")
    return dict(zip(("person_bytes", "auction_bytes", "bid_bytes"), map(int, parts), strict=True))


def show_queries() -> None:
    """Prints one line for each query: its name and its question."""
    for query in QUERIES.values():
        typer.echo(f"{query.name:6} {(query.build.__doc__ or '').splitlines()[0]}")
