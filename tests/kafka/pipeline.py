"""A driver in a process of its own: `examples/kafka_pipeline.py` with a real broker, which is killed in the middle.

So is an ingress node; and in the end the counts are read back from their topic. Prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from runpy import run_path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tests.kafka.broker import KAFKA, Broker, NotThere, resolved
from tests.runtime.counting import recovered, wait_until

CACHE = Path.home() / ".cache" / "seep" / "ivy"
#: Seconds for all packages to come, if they are not in the cache.
PATIENCE = 30.0
CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13")
#: Versions of the connector: that of this Spark, or one that is known to work with it where the registry lacks it.
VERSIONS = (pyspark.__version__, "4.1.0-preview1")
USERS, HALF = 20, 3_000
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)

EXAMPLE = run_path(str(Path(__file__).parents[2] / "examples" / "kafka_pipeline.py"))


def packages() -> tuple[str, str]:
    """The class paths of the broker and of the connector."""
    deadline = time.monotonic() + PATIENCE
    broker = resolved(KAFKA, CACHE, PATIENCE)
    cached = [version for version in VERSIONS if (CACHE / f"{'-'.join((*CONNECTOR, version))}.classpath").exists()]
    for version in cached or VERSIONS:
        try:
            return broker, resolved((*CONNECTOR, version), CACHE, max(deadline - time.monotonic(), 1.0))
        except NotThere as reason:
            why = reason
    raise why


def session(connector: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[16,4]").appName("clicks").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", connector.replace(":", ",")).config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def click(n: int) -> tuple[str, datetime]:
    return f"user {n * 7919 % USERS}", BEGIN + timedelta(milliseconds=100 * n)


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


def story(spark: SparkSession, broker: Broker, home: Path) -> dict[str, Any]:
    produce(spark, broker.servers, range(HALF))
    query = EXAMPLE["counting"](EXAMPLE["clicks"](spark, broker.servers, "clicks"), home)
    with EXAMPLE["start"](query, spark, home) as run:
        writing = EXAMPLE["write"](run.to_spark(), broker.servers, "counts", home)
        wait_until(lambda: run.rows_read >= HALF // 2)
        broker.kill()
        run.kill("clicks")
        recovered(run)
        broker.start()
        produce(spark, broker.servers, range(HALF, 2 * HALF))
        wait_until(lambda: run.rows_read >= 2 * HALF)
        run.finish()
        run.wait(120)
        writing.processAllAvailable()
        writing.stop()
        lost, read = len(run.events.of("node lost")), run.rows_read
    found = counted(spark, broker.servers)
    return {
        "lost": lost,
        "read": read,
        "equal": dict(found) == expected(read),
        "alike": len(set(found)) == len(dict(found)),
    }


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
