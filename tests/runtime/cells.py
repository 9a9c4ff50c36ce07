"""What somebody does in a notebook, cell by cell; tells what came of it as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext

import seep
from tests.waiting import eventually

SCHEMA = pa.schema([("n", pa.int64())])


def numbers(_: int, first: int, count: int) -> dict[str, Any]:
    return {"n": np.arange(first, first + count)}


def counting(rows: int | None) -> seep.Query:
    query = seep.Query("cells")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=rows), rate=20_000)
    source.sink("out", seep.sinks.collect())
    return query


def refusal(action: Any) -> str:
    try:
        action()
    except seep.UserError as reason:
        return str(reason)
    return ""


def sessions() -> int:
    return int(SparkContext._active_spark_context is not None)


def cells() -> dict[str, Any]:
    said: dict[str, Any] = {}
    run = seep.launch(counting(None))
    said |= {"id": run.id, "again": refusal(lambda: seep.launch(counting(None)))}
    said |= {"found": [found is run for found in seep.runs()], "repr": repr(seep.runs())}
    eventually(lambda: run.rows_read > 0)
    seep.runs()[0].finish()
    run.wait()
    said["closed by itself"] = eventually(lambda: not seep.runs()) and sessions() == 0
    said["rows"] = [run.rows_read, len(run.result("out")), run.report()["summary"]["rows"]]
    said["over"] = [repr(run), list(run.nodes)]

    second = seep.launch(counting(100))
    second.wait()
    third = seep.launch(counting(200))  # at once, while the session of the second is being closed
    frame = third.to_batch_df()
    said["lent"] = [frame.count(), sessions(), len(seep.runs())]
    said["fourth"] = refusal(lambda: seep.launch(counting(None)))
    third.stop()
    said["stopped"] = [sessions(), len(seep.runs()), refusal(third.to_batch_df)]
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps(cells()) + "\n")
