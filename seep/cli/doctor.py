"""Doctor: checks the requirements of a run, first without Spark and then in its own session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rich.text import Text

from primitives.errors import SeepError
from seep.spark.preflight import PreflightCheck, PreflightVerdict, before_start, of_session

#: Seconds without a new executor after which all executors are assumed to be there.
_SETTLED = 3.0

_STYLES = {PreflightVerdict.OK: "green", PreflightVerdict.WARN: "yellow", PreflightVerdict.FAIL: "red"}


def examine(master: str | None, nodes: int, say: Callable[[Text], None]) -> bool:
    """Reports every check as it is made; returns whether a run is possible. A session takes about 3 s to start.

    Spark is not started if it could not run.
    """
    runs_here = master is None or master.startswith("local")
    here = _report(before_start(nodes if runs_here else 0), say)
    return here and _report(_in_session(master, nodes), say)  # one by one, because executors take time to start


def _report(checks: Iterable[PreflightCheck], say: Callable[[Text], None]) -> bool:
    """Reports all checks; returns whether none has failed."""
    verdicts = []
    for check in checks:
        say(check_line(check))
        verdicts.append(check.verdict)
    return PreflightVerdict.FAIL not in verdicts


def _in_session(master: str | None, nodes: int) -> Iterator[PreflightCheck]:
    from seep.spark.session import open_session

    try:
        with open_session(master=master, slots_needed=nodes, name="seep doctor") as host:
            yield PreflightCheck("Spark", PreflightVerdict.OK, f"starts at {host.context.master}")
            yield from of_session(host.context, nodes, settled=_SETTLED)
    except SeepError as failure:
        yield PreflightCheck("Spark", PreflightVerdict.FAIL, str(failure))


def check_line(check: PreflightCheck) -> Text:
    """Returns a check in one line."""
    verdict = Text(f"{check.verdict.value:<5}", style=_STYLES[check.verdict])
    return verdict + Text(f"{check.name:<11}{check.text}")
