"""Flags: the options that every command that runs a query takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from seep.logs.levels import LogFormat, LogLevel


class RateProfile(StrEnum):
    """The names of `seep.sources.Profile`, which takes NumPy to import."""

    STEADY = "steady"
    RAMP = "ramp"
    SAWTOOTH = "sawtooth"
    SPIKE = "spike"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    """Makes an option without a default in the help: the help text says it, because a policy file may set another."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags as given on the command line; None or empty if not given, so that a policy file may set them."""

    master: Annotated[
        str | None,
        _option("--master", metavar="URL", help="Spark's master, such as spark://host:7077; local[64] if not given."),
    ] = None
    policy: Annotated[
        Path | None,
        _option("--policy", metavar="FILE", help="YAML file, such as those in config/; flags override it."),
    ] = None
    epoch: Annotated[
        str | None, _option("--epoch", metavar="TIME", help="Time between two ticks, such as 20ms; 50ms if not given.")
    ] = None
    checkpoint: Annotated[
        str | None,
        _option("--checkpoint", metavar="TIME", help="Time between two checkpoints, or 'none'; 5s if not given."),
    ] = None
    storage: Annotated[
        str | None,
        _option(
            "--storage", metavar="LOCATION", help="Where checkpoints are kept after the run, such as s3://bucket/seep."
        ),
    ] = None
    restore: Annotated[
        str | None,
        _option(
            "--restore",
            metavar="auto|none|latest|ID",
            help="Where to begin, at any parallelism: auto (the default) continues from the latest checkpoint in "
            "storage, if there is one; none begins from nothing; latest, or the number of a checkpoint.",
        ),
    ] = None
    fall_back: Annotated[
        bool, _option("--fall-back", help="If the latest checkpoint is damaged, begin from the one before.")
    ] = False
    allow_dropped_state: Annotated[
        bool,
        _option("--allow-dropped-state", help="Begin without stored state of operators that the query no longer has."),
    ] = False
    parallelism: Annotated[
        list[str], _option("--parallelism", metavar="OP=N", help="Instances of an operator; may be given repeatedly.")
    ] = field(default_factory=list)
    nodes: Annotated[
        int | None,
        _option("--nodes", metavar="N", help="Nodes that host the instances; one per instance if not given."),
    ] = None
    spare: Annotated[
        int | None, _option("--spare", metavar="N", help="Warm VMs that the pool keeps; 1 if not given.")
    ] = None
    vm_cpu: Annotated[
        float | None,
        _option("--vm-cpu", metavar="CORES", help="CPU share of each node, such as 0.2; no limit if not given."),
    ] = None
    seconds: Annotated[
        str | None, _option("--seconds", metavar="TIME", help="End the input after this time, such as 30 or 5min.")
    ] = None
    rate: Annotated[
        str | None,
        _option("--rate", metavar="ROWS", help="Rows per second of each source, such as 20k, or 'max' for no limit."),
    ] = None
    rate_profile: Annotated[
        RateProfile | None,
        _option("--rate-profile", help="How the rate changes over each minute; steady if not given."),
    ] = None
    balance: Annotated[bool, _option("--balance", help="Move slots away from instances with a high load.")] = False
    chaos: Annotated[
        str | None,
        _option(
            "--chaos",
            metavar="ACT:TARGET@TIME,…",
            help="Faults and changes to cause, and how long after the start: kill, stop (freeze) or cont (continue) "
            "the nodes of an operator (counter) or of an instance (counter[0]); scale:counter=3; "
            "migrate:counter=batched; handover:counter[0]; balance:counter. "
            "Such as 'kill:counter@5s,scale:counter=2@8s'.",
        ),
    ] = None
    tls: Annotated[bool, _option("--tls", help="Encrypt all channels, with a certificate made for the run.")] = False
    metrics: Annotated[
        int | None,
        _option("--metrics", metavar="[PORT]", help="Serve metrics for Prometheus, on this port or any free one."),
    ] = None
    otlp: Annotated[
        str | None,
        _option("--otlp", metavar="URL", help="Push metrics and traces to this OpenTelemetry collector, over HTTP."),
    ] = None
    dashboard: Annotated[
        int | None,
        _option("--dashboard", metavar="[PORT]", help="Serve the live page, on this port or any free one."),
    ] = None
    report: Annotated[
        Path | None,
        _option("--report", metavar="FILE.json", help="Write events, time series and summary here."),
    ] = None
    log_level: Annotated[
        LogLevel | None,
        _option("--log-level", help="Write log lines of driver and nodes to stderr, from this level on."),
    ] = None
    log_format: Annotated[
        LogFormat | None,
        _option("--log-format", help="Write log lines as text, or as JSON, one object per line."),
    ] = None
    quiet: Annotated[bool, _option("--quiet", "-q", help="No progress and no events.")] = False
    verbose: Annotated[bool, _option("--verbose", "-v", help="All events, Spark's log, traces of errors.")] = False
