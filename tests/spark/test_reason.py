"""Spark's stack traces, as it wrote them, and the one line that each comes to."""

from __future__ import annotations

import pytest

from seep.spark.reason import CANCELLED, SPARK_GONE, WORKER_GONE, for_spark, reason_of, reason_of_exception

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
ABORTED = (
    f"{CALL}org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 1.0 (TID 2) (192.0.2.2 executor driver): "
)
STACK = (
    "\n\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1136)\n\nDriver stacktrace:\n\tat java.base"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise ValueError("no")\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider…",
            WORKER_GONE,
        ),
        (
            f"{CALL}org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 0 cancelled part of … SQLSTATE: X",
            CANCELLED,
        ),
        (f"{ABORTED}org.apache.spark.api.python.PythonException: {TRACEBACK}ValueError: no\n{STACK}", "ValueError: no"),
        (
            f"{ABORTED}o.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the worker: {TRACEBACK}"
            f"ValueError: no,\nnever SQLSTATE: 38000{STACK}",
            "ValueError: no, never",
        ),
        (
            f"An exception was thrown from the Python worker:\n{TRACEBACK}ValueError: no,\nnever",
            "ValueError: no, never",
        ),
        (
            f"An exception was thrown from the Python worker:\n{TRACEBACK}ValueError: no\n\nJVM stacktrace:\no{STACK}",
            "ValueError: no",
        ),
        (
            f"{ABORTED}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Remote RPC "
            f"client disassociated. Likely due to containers exceeding thresholds.{STACK}",
            "executor 1 was lost: Remote RPC client disassociated",
        ),
        (
            f"{ABORTED}java.io.IOException: No space left on device{STACK}",
            "java.io.IOException: No space left on device",
        ),
        (
            f'{ABORTED}java.io.IOException: Cannot run program "python9": error=2{STACK}',
            "there is no Python 'python9' there; set PYSPARK_PYTHON",
        ),
        (
            f"{CALL}org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down",
            "Spark was stopped",
        ),
        (f"{CALL}java.lang.IllegalArgumentException: what{STACK}", "java.lang.IllegalArgumentException: what"),
        ("", "for no reason given"),
    ],
)
def test_a_stack_trace_comes_to_one_line(text: str, reason: str) -> None:
    assert reason_of(text) == reason


def test_another_python_version_is_told_with_what_to_do() -> None:
    said = reason_of(f"{ABORTED}PythonException: {TRACEBACK}[PYTHON_VERSION_MISMATCH] Python in worker has 3.9{STACK}")
    assert "3.9" in said
    assert "PYSPARK_PYTHON" in said


def test_a_lost_connection_means_that_the_jvm_is_gone() -> None:
    assert reason_of_exception(ConnectionRefusedError(111, "refused")) == SPARK_GONE


def test_what_spark_searches_is_one_short_line_whatever_went_wrong() -> None:
    long = "no\nand " * 5_000
    said = for_spark(ValueError(f"{ABORTED}PythonException: {TRACEBACK}ValueError: {long}{STACK}"))
    assert said.startswith("ValueError: no and no")
    assert len(said) <= 400
