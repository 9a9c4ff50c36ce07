"""A driver in a process of its own: `examples/kafka_pipeline.py` with a real broker, which is killed in the middle.

So is an ingress node; then the example is stopped, and started again; and in the end the counts are read back from
their topic. Prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from runpy import run_path
from typing import Any

from pyspark.sql import SparkSession

from seep import Run
from tests.kafka.broker import Broker
from tests.kafka.packages import JARS, NotThere, packages
from tests.runtime.counting import recovered, wait_until

USERS, HALF = 20, 3_000
#: Clicks of a half are at most 9 s apart, which is less than the example lets them be out of order: which partition
#: Spark reads how far is up to Spark. Each half has clicks of two minutes, and one minute is in both.
BEGIN, STEP = datetime(2026, 1, 1, 11, 59, 55, tzinfo=UTC), timedelta(milliseconds=3)

EXAMPLE = run_path(str(Path(__file__).parents[2] / "examples" / "kafka_pipeline.py"))


def lacking(jars: Sequence[str]) -> list[str]:
    """Those that Spark has not, in whatever version."""
    there = {name_of(path) for path in JARS.iterdir()}
    return [jar for jar in jars if name_of(Path(jar)) not in there]


def name_of(jar: Path) -> str:
    return re.sub(r"-\d.*", "", jar.name)


def session(connector: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[16,4]").appName("clicks").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(lacking(connector.split(":"))))
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def click(n: int) -> tuple[str, datetime]:
    return f"user {n * 7919 % USERS}", BEGIN + n // HALF * timedelta(minutes=1) + n % HALF * STEP


def produce(spark: SparkSession, servers: str, numbers: range) -> None:
    rows = [(user, json.dumps({"user": user, "at": at.isoformat()})) for user, at in map(click, numbers)]
    messages = spark.createDataFrame(rows, "key string, value string").coalesce(1)
    messages.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "clicks").save()


def expected(rows: int) -> Counter[tuple[str, datetime]]:
    return Counter((user, at.replace(second=0, microsecond=0)) for user, at in map(click, range(rows)))


def counted(spark: SparkSession, servers: str) -> list[tuple[tuple[str, datetime], int]]:
    """All that is in the topic of counts; each once or, as Spark's writer may repeat a batch, several times."""
    topic = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "counts").load()
    schema = "user string, minute timestamp, n bigint"
    rows = topic.selectExpr(f"from_json(cast(value as string), '{schema}') as c").select("c.*").toArrow().to_pylist()
    return [((row["user"], row["minute"]), row["n"]) for row in rows]


@contextmanager
def example(spark: SparkSession, broker: Broker, home: Path) -> Iterator[Run]:
    """The example as its own command runs it, until the block ends."""
    query = EXAMPLE["counting"](EXAMPLE["clicks"](spark, broker.servers, "clicks"), home)
    with EXAMPLE["start"](query, spark, home) as run:
        writing = EXAMPLE["write"](run.to_spark(), broker.servers, "counts", home)
        yield run
        if run.finished:
            writing.processAllAvailable()
        writing.stop()


def story(spark: SparkSession, broker: Broker, home: Path) -> dict[str, Any]:
    """The second start of the same command goes on where the first one was stopped."""
    produce(spark, broker.servers, range(HALF))
    with example(spark, broker, home) as run:
        wait_until(lambda: run.rows_read >= HALF // 2)
        broker.kill()
        run.kill("clicks")
        recovered(run)
        lost, late = len(run.events.of("node lost")), late_in(run)
        broker.start()
    produce(spark, broker.servers, range(HALF, 2 * HALF))
    with example(spark, broker, home) as run:
        goes_on = run.goes_on
        wait_until(lambda: run.rows_read >= 2 * HALF)
        run.finish()
        run.wait(120)
        read = run.rows_read
        late += late_in(run)
    found = counted(spark, broker.servers)
    return {
        "lost": lost,
        "goes on": goes_on,
        "read": read,
        "late": late,
        "equal": dict(found) == expected(read),
        "alike": len(set(found)) == len(dict(found)),
    }


def late_in(run: Run) -> int:
    return int(run.report()["summary"]["counters"].get("late", 0))


def main() -> None:
    try:
        broker, connector = packages()
    except NotThere as reason:
        sys.stdout.write(json.dumps({"not run": str(reason)}) + "\n")
        return
    with tempfile.TemporaryDirectory() as directory, Broker(broker, Path(directory, "kafka")) as running:
        spark = session(connector)
        try:
            told = story(spark, running, Path(directory, "home"))
        finally:
            spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
