"""`seep report`: draws the reports that runs write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from primitives.errors import EnvironmentFault, UserError
from seep.cli.failures import told_in_one_line

app = typer.Typer(
    name="report",
    help="Reports that runs have written with --report.",
    epilog="Example: seep report plot run.json",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None: ...


@app.command(epilog="Example: seep report plot run.json --out run.html")
def plot(
    report: Annotated[Path, typer.Argument(metavar="FILE.json", help="A report.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="The page to write; beside the report if not given.")
    ] = None,
) -> None:
    """Draw a report: rows, latency, instances, CPU and VMs over time, in one page that needs nothing else."""
    with told_in_one_line(verbose=False):
        typer.echo(f"drawn: {write_page(report, out or report.with_suffix('.html'))}")


def write_page(report: Path, out: Path, notes: tuple[str, ...] = ()) -> Path:
    """Draws the report in a file."""
    from seep.reports.page import page

    drawn = page(read(report), notes)
    try:
        out.write_text(drawn, encoding="utf-8")
    except OSError as reason:
        raise EnvironmentFault(f"{out} cannot be written: {reason.strerror}") from reason
    return out


def is_report(of: str) -> bool:
    """Whether what a command is for is a file with a report, and not a run."""
    return of.endswith(".json") or Path(of).is_file()


def read(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise UserError(f"there is no report {path}: {reason.strerror}; runs write one with --report") from None
    except ValueError as reason:
        raise UserError(f"{path} is not a report, because it is not JSON: {reason}") from None
    if not isinstance(report, dict) or not {"summary", "series", "events"} <= report.keys():
        raise UserError(f"{path} is not a report of a run; give a file written by --report")
    return report
