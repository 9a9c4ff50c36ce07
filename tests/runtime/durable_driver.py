"""A driver in a process of its own, to be killed: a count of files' worth of numbers into Parquet, with storage.

    python -m tests.runtime.durable_driver DIRECTORY [options of the run, and rows of a partition, as JSON]

Prints a line for each checkpoint that is complete, and "done" when all rows are committed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import seep
from policies.backup import BackupSection
from primitives.event import Event
from seep.storage.settings import StorageSettings
from tests.runtime.counting import SCHEMA, doubled, numbers

#: Ten seconds' worth, so that the input lasts until what is waited for has happened.
ROWS, PARTITIONS = 100_000, 4
RATE = 40_000


def durable(out: Path, rows: int = ROWS) -> seep.Query:
    """source -> map -> count and sum by key -> Parquet, every change of which is written."""
    query = seep.Query("durable")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=PARTITIONS, rows=rows))
    totals = source.map("map", doubled).key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"))
    totals.sink("out", seep.sinks.parquet(out, roll=7))
    return query


def options(directory: Path) -> dict[str, Any]:
    storage = StorageSettings(location=str(directory / "checkpoints"), every=1)
    return {"epoch": 0.02, "checkpoint": 0.4, "storage": storage, "rate": seep.Rate(RATE)}


def main(directory: Path, more: dict[str, Any]) -> None:
    given = options(directory) | more
    if "backup" in more:
        given["backup"] = BackupSection.model_validate(more["backup"])
    rows = given.pop("rows", ROWS)
    with seep.launch(durable(directory / "out", rows), **given) as run:
        run.events.listen(_say)
        run.wait(120)
    _print("done")


def _say(event: Event) -> None:
    if event.kind == "persisted":
        _print(f"checkpoint {event.numbers['id']}")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
