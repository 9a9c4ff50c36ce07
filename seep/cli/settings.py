"""Settings of a run from a command's defaults, a policy file and flags; each overrides those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from formats.durations import optional_seconds, seconds
from formats.settings import Section, checked
from policies.balance.settings import BalanceSettings
from primitives.errors import UserError
from seep.cli.flags import Flags
from seep.config.files import read_policy
from seep.config.launching import launch_settings, sections_of
from seep.config.policy import PolicyFile, rows_per_second
from seep.driver.options import RunOptions
from seep.logs.settings import LogSettings
from seep.metrics.settings import MetricsSettings, OtlpSettings
from seep.rows.rate import Profile, Rate
from seep.running.chaos import Strike, parse_chaos
from seep.storage.settings import StorageSettings
from vmpool.settings import VMSettings

T = TypeVar("T")
S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The settings of a run, checked as far as possible without the query."""

    master: str | None = None
    options: RunOptions = field(default_factory=RunOptions)
    parallelism: Mapping[str, int] = field(default_factory=dict)
    rate: Rate | None = None  #: rate of each source; None: as the query says
    strikes: tuple[Strike, ...] = ()
    report: Path | None = None
    verbose: bool = False
    quiet: bool = False


def settings_of(flags: Flags, **defaults: Any) -> CommandSettings:
    """Combines settings; `defaults` are fields of `RunSection`. A UserError names the wrong flag or field."""
    policy = read_policy(flags.policy) if flags.policy else PolicyFile()
    sections = sections_of(policy)
    sections |= {"vm": _vm(policy.vm, flags), "storage": _storage(policy.storage, flags)}
    sections |= {"balance": _balance(policy.balance, flags), "log": _log(policy.log, flags)}
    sections |= {"metrics": _metrics(policy.metrics, flags)}
    sections |= {"dashboard": _at_port(policy.dashboard, flags.dashboard, "--dashboard")}
    launch = launch_settings(defaults | policy.run.given() | _given(flags) | sections)
    return CommandSettings(
        master=flags.master,
        options=launch.options,
        parallelism={**launch.parallelism, **_parallelism(flags.parallelism)},
        rate=launch.rate,
        strikes=parse_chaos(flags.chaos) if flags.chaos else (),
        report=_writable(flags.report),
        verbose=flags.verbose,
        quiet=flags.quiet,
    )


def _vm(vm: VMSettings, flags: Flags) -> VMSettings:
    return vm if flags.vm_cpu is None else checked(VMSettings, {**vm.model_dump(), "cpu": flags.vm_cpu}, "--vm-cpu")


def _balance(balance: BalanceSettings, flags: Flags) -> BalanceSettings:
    return balance.model_copy(update={"enabled": True}) if flags.balance else balance


def _storage(storage: StorageSettings, flags: Flags) -> StorageSettings:
    return storage if flags.storage is None else storage.model_copy(update={"location": flags.storage})


def _log(log: LogSettings, flags: Flags) -> LogSettings:
    return LogSettings(level=flags.log_level or log.level, format=flags.log_format or log.format)


def _metrics(metrics: MetricsSettings, flags: Flags) -> MetricsSettings:
    metrics = _at_port(metrics, flags.metrics, "--metrics")
    if flags.otlp is not None:
        otlp = checked(OtlpSettings, {**metrics.otlp.model_dump(), "url": flags.otlp}, "--otlp")
        metrics = metrics.model_copy(update={"otlp": otlp})
    return metrics


def _at_port(settings: S, port: int | None, flag: str) -> S:
    """Returns the settings of something that is served, with the port of its flag if that is given."""
    return settings if port is None else checked(type(settings), {**settings.model_dump(), "port": port}, flag)


def _given(flags: Flags) -> dict[str, Any]:
    """Returns the flags that were given."""
    said: dict[str, Any] = {"nodes": flags.nodes, "spare": flags.spare, "restore": flags.restore}
    said |= {"fall_back": flags.fall_back or None, "allow_dropped_state": flags.allow_dropped_state or None}
    said |= {
        "epoch": _read("--epoch", flags.epoch, seconds),
        "seconds": _read("--seconds", flags.seconds, seconds),
        "rate_profile": _read("--rate-profile", flags.rate_profile, Profile),
        "tls": flags.tls or None,
    }
    said = {name: value for name, value in said.items() if value is not None}
    if flags.checkpoint is not None:
        said["checkpoint"] = _read("--checkpoint", flags.checkpoint, optional_seconds)
    if flags.rate is not None:
        said["rate"] = _read("--rate", flags.rate, rows_per_second)
    return said


def _read(flag: str, text: Any, reader: Callable[[Any], T]) -> T | None:
    try:
        return None if text is None else reader(text)
    except ValueError as reason:
        raise UserError(f"{flag}: {reason}") from None


def _parallelism(given: list[str]) -> dict[str, int]:
    """Reads `counter=2` as a mapping.

    >>> _parallelism(["counter=2", "splitter=1"])
    {'counter': 2, 'splitter': 1}
    """
    found = {}
    for text in given:
        operator, equals, instances = text.partition("=")
        if not (operator and equals and instances.isdecimal() and int(instances) > 0):
            raise UserError(f"--parallelism {text!r}: write an operator and its instances, such as counter=2")
        found[operator] = int(instances)
    return found


def _writable(report: Path | None) -> Path | None:
    """Checks the report's directory now, because at the end of the run its report would be lost."""
    if report is not None and not report.absolute().parent.is_dir():
        raise UserError(f"--report {report}: there is no directory {report.absolute().parent}")
    return report
