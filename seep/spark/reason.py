"""Extracts from Spark's long stack traces, in one line, why a node's task ended."""

from __future__ import annotations

import re
from collections.abc import Callable

CANCELLED = "cancelled"
WORKER_GONE = "its Python worker exited: killed, out of memory, or crashed"
SPARK_GONE = "Spark's JVM is gone"

#: Most characters of an error for Spark: its search of Python's errors overflows its stack at some thousands.
_MOST_FOR_SPARK = 400

#: A Python traceback up to the rest of Spark's text: in the form of the JVM, and in that of pyspark.
_TRACEBACK = (
    r"(?:PythonException: [^\n]*?|from the Python worker:\s*)"
    r"(Traceback .*?)(?: SQLSTATE: \w+|\n\tat |\n\n(?:Driver|JVM) stacktrace|\Z)"
)

#: Patterns from the most specific to the least, with the reason for each; the first that matches wins.
_KNOWN: list[tuple[str, Callable[[re.Match[str]], str]]] = [
    (r"PYTHON_VERSION_MISMATCH\]?[:\s]*([^\n]*)", lambda found: _versions(found[1])),
    (_TRACEBACK, lambda found: _last_line(found[1])),
    (r"ExecutorLostFailure \(executor (\S+) [^)]*\)\s*Reason: ([^\n]*)", lambda found: _executor(found[1], found[2])),
    (r"SPARK_JOB_CANCELLED|cancelled part of cancelled job group|Stage cancelled", lambda _: CANCELLED),
    (r"Python worker exited unexpectedly", lambda _: WORKER_GONE),
    (r"SparkContext was shut down|stopped SparkContext|SparkContext has been shutdown", lambda _: "Spark was stopped"),
    (r"Cannot run program \"([^\"]*)\"", lambda found: f"there is no Python {found[1]!r} there; set PYSPARK_PYTHON"),
    (r"most recent failure: [^\n]*?: ([^\n]+)", lambda found: found[1].strip()),
]


def reason_of(text: str) -> str:
    """Returns one line for Spark's text about a failed job or task.

    >>> reason_of("Lost task 0.0 in stage 0.0 (TID 0) (127.0.0.2 executor 1): ExecutorLostFailure (executor 1 exited "
    ...           "caused by one of the running tasks) Reason: Command exited with code 137")
    'executor 1 was lost: Command exited with code 137'
    """
    for pattern, say in _KNOWN:
        if found := re.search(pattern, text, re.DOTALL):
            return say(found)
    lines = [line.strip(" :") for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    return lines[0] if lines else "for no reason given"


def reason_of_exception(error: BaseException) -> str:
    """Returns one line for the exception of a Spark call in the driver."""
    if type(error).__name__ == "Py4JNetworkError" or isinstance(error, ConnectionError | EOFError):
        return SPARK_GONE
    return reason_of(str(error))


def for_spark(error: BaseException) -> str:
    """Returns one short line for an exception of Python code called by Spark."""
    reason = " ".join(reason_of_exception(error).split())
    return reason if len(reason) <= _MOST_FOR_SPARK else f"{reason[: _MOST_FOR_SPARK - 1]}…"


def _last_line(traceback: str) -> str:
    """Returns the exception of a Python traceback; its text may have several lines that are not indented."""
    lines = [line for line in traceback.strip().splitlines() if line.strip()]
    at = max((number for number, line in enumerate(lines) if line.startswith(" ")), default=len(lines) - 2)
    return " ".join(line.strip() for line in lines[at + 1 :])


def _executor(name: str, reason: str) -> str:
    sentence = reason.strip().split(". ")[0].rstrip(".")
    return f"executor {name} was lost: {sentence}"


def _versions(text: str) -> str:
    return (
        f"the nodes run another Python version than the driver ({text.strip()[:200]}); "
        "set PYSPARK_PYTHON, on all hosts, to the same version"
    )
