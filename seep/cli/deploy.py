"""`seep deploy`: starts, shows, resizes and removes a cluster in the cloud."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seep.cli.failures import told_in_one_line
from seep.cli.options import Verbose, Yes
from seep.reports import figures

if TYPE_CHECKING:
    from seep.deploy.cluster import CloudCluster

app = typer.Typer(
    name="deploy",
    help="Bring a Spark cluster up in EC2 or Google Cloud, watch it, resize it, take it down.",
    epilog="Example: seep deploy ec2 up --config config/ec2.yaml --dry-run",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Cloud(StrEnum):
    """The keys of `seep.deploy.providers`, which takes pydantic to import."""

    EC2 = "ec2"
    GCP = "gcp"


Config = Annotated[
    Path,
    typer.Option("--config", metavar="FILE", help="The cluster file, such as config/ec2.yaml.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and what it costs; do nothing.")]


def _up(cloud: Cloud, config: Path, dry_run: bool, verbose: bool) -> None:
    """Make the missing parts of the cluster. Continues after an interruption; changes nothing if none is missing."""
    with told_in_one_line(verbose=verbose):
        cluster = _opened(cloud, config)
        if dry_run:
            _say_plan(cluster)
            return
        made = cluster.up()
        typer.echo(f"{figures.of(made, 'resource')} made" if made else "nothing to do")
        _say_master(cluster)


def _status(cloud: Cloud, config: Path, verbose: bool) -> None:
    """Show the existing parts of the cluster."""
    with told_in_one_line(verbose=verbose):
        cluster = _opened(cloud, config)
        typer.echo("\n".join(status_lines(cluster.status())))
        _say_master(cluster)


def _scale(cloud: Cloud, config: Path, workers: int, dry_run: bool, verbose: bool) -> None:
    """Start or end workers until there are N, not counting those of a pool."""
    with told_in_one_line(verbose=verbose):
        cluster = _opened(cloud, config)
        if dry_run:
            typer.echo(f"scale {cluster.name} to {figures.of(workers, 'worker')}")
            return
        changed = cluster.scale(workers)
        typer.echo(f"{figures.of(changed, 'worker')} changed" if changed else "nothing to do")


def _down(cloud: Cloud, config: Path, dry_run: bool, yes: bool, verbose: bool) -> None:
    """Remove all parts of the cluster, including workers of a pool."""
    with told_in_one_line(verbose=verbose):
        cluster = _opened(cloud, config)
        there = [label for label, found in cluster.status().items() if found]
        if dry_run or not there:
            typer.echo("\n".join(f"delete {label}" for label in reversed(there)) or "nothing to do")
            return
        if not yes:
            typer.confirm(f"Remove {', '.join(there)}?", abort=True)
        typer.echo(f"{figures.of(cluster.down(), 'resource')} removed")


def _opened(cloud: Cloud, config: Path) -> CloudCluster:
    from seep.deploy.providers import open_cluster

    return open_cluster(cloud, config, typer.echo)


def _say_plan(cluster: CloudCluster) -> None:
    typer.echo("\n".join(cluster.plan()))
    typer.echo("\n".join(cost_lines(cluster.hourly)))


def cost_lines(hourly: Mapping[str, float | None]) -> list[str]:
    """Returns the costs, as far as they are known.

    >>> cost_lines({"master (m6i.large)": 0.107, "2 workers (c7i.large)": None})
    ['master (m6i.large): $0.107 per hour', '2 workers (c7i.large): unknown price, see hourly in the cluster file', \
'in all: unknown']
    """
    unknown = "unknown price, see hourly in the cluster file"
    lines = [f"{label}: {unknown if price is None else f'${price:.3f} per hour'}" for label, price in hourly.items()]
    known = [price for price in hourly.values() if price is not None]
    total = f"${sum(known):.3f} per hour, and disks and traffic" if len(known) == len(hourly) else "unknown"
    return [*lines, f"in all: {total}"]


def status_lines(status: Mapping[str, str | None]) -> list[str]:
    """Returns a line for each resource, aligned.

    >>> status_lines({"role seep-a": "arn:1", "master": None})
    ['role seep-a  arn:1', 'master       not there']
    """
    width = max(map(len, status))
    return [f"{label:<{width}}  {found or 'not there'}" for label, found in status.items()]


def _say_master(cluster: CloudCluster) -> None:
    """Prints the master's address, which is inside the cluster's network, where the driver has to be too."""
    master = cluster.master_url()
    if master is None:
        typer.echo("no master")
        return
    typer.echo(f"Spark master: {master}")
    typer.echo(f"on the master: seep run MODULE:QUERY --master {master}")


def _commands(cloud: Cloud, title: str) -> typer.Typer:
    """Makes the four commands for one provider."""
    commands = typer.Typer(help=f"A cluster in {title}.", no_args_is_help=True, rich_markup_mode=None)

    def example(words: str) -> str:
        return f"Example: seep deploy {cloud} {words} --config config/{cloud}.yaml"

    @commands.command(epilog=example("up"), help=_up.__doc__)
    def up(config: Config, dry_run: DryRun = False, verbose: Verbose = False) -> None:
        _up(cloud, config, dry_run, verbose)

    @commands.command(epilog=example("status"), help=_status.__doc__)
    def status(config: Config, verbose: Verbose = False) -> None:
        _status(cloud, config, verbose)

    @commands.command(epilog=example("scale --workers 4"), help=_scale.__doc__)
    def scale(
        config: Config,
        workers: Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Number of workers at the end.")],
        dry_run: DryRun = False,
        verbose: Verbose = False,
    ) -> None:
        _scale(cloud, config, workers, dry_run, verbose)

    @commands.command(epilog=example("down"), help=_down.__doc__)
    def down(
        config: Config,
        dry_run: DryRun = False,
        yes: Yes = False,
        verbose: Verbose = False,
    ) -> None:
        _down(cloud, config, dry_run, yes, verbose)

    return commands


app.add_typer(_commands(Cloud.EC2, "Amazon EC2"), name="ec2")
app.add_typer(_commands(Cloud.GCP, "Google Cloud"), name="gcp")
