"""Implements the commands of `seep nexmark` apart from `run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.progress import Progress

from nexmark.generator import EventSettings
from nexmark.log import log
from nexmark.queries import QUERIES
from nexmark.rhino import write_records
from nexmark.schema import LOG
from primitives.errors import EnvironmentFault, UserError
from seep.reports import figures


def generate_log(settings: EventSettings, count: int, out: Path, *, quiet: bool) -> None:
    """Writes a log; the file appears, complete, when all events are written."""
    if out.suffix != ".parquet":
        raise UserError(f"{out} is to be a log, which is Parquet; let its name end with .parquet")
    begin, part = perf_counter(), out.with_name(out.name + ".part")
    try:
        with pq.ParquetWriter(part, LOG) as writer:
            for batch in _shown(log(settings, count), count, quiet=quiet):
                writer.write_batch(batch)
        part.replace(out)
    except OSError as reason:
        raise EnvironmentFault(f"{out} cannot be written: {reason}") from reason
    finally:
        part.unlink(missing_ok=True)
    _tell(out, count, begin, quiet=quiet)


def generate_records(settings: EventSettings, count: int, out: Path, *, quiet: bool) -> None:
    """Writes the records of each kind to their own file, in the blocks that Rhino's Kafka source reads."""
    begin = perf_counter()
    write_records(settings, count, out)
    _tell(out, count, begin, quiet=quiet)


def _tell(out: Path, count: int, begin: float, *, quiet: bool) -> None:
    if not quiet:
        typer.echo(f"{out}: {figures.of(count, 'event')}, in {figures.time(perf_counter() - begin)}")


def _shown(batches: Iterable[pa.RecordBatch], count: int, *, quiet: bool) -> Iterator[pa.RecordBatch]:
    """Returns the batches, and shows a progress bar of the events made so far."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("events", total=count)
        for batch in batches:
            yield batch
            progress.advance(task, len(batch))


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
