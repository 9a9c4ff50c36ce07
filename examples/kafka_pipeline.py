"""Kafka -> Spark's connector -> clicks by user and minute, counted by seep -> Kafka.

python examples/kafka_pipeline.py --servers 127.0.0.1:9092 --home /shared/clicks

Clicks are JSON, {"user": "ann", "at": "2026-01-01T12:00:00Z"}. Ended with Ctrl-C, or however, it goes on where it was
when it is started again: what the nodes know, what Spark has read and what it has written are all under `--home`.
Spark's writer may write a batch twice, so whoever reads the counts keeps one for each user and minute.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import seep
from seep.storage.settings import StorageSettings

#: Spark fetches it from the registry that it is set up for, once.
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def session(version: str = pyspark.__version__) -> SparkSession:
    """With the connector, and with task slots for nodes and for Spark's own work, if spark-submit has not said."""
    builder = SparkSession.builder.appName("clicks").config("spark.jars.packages", f"{CONNECTOR}:{version}")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    return (builder if is_submitted else builder.master("local[16,4]")).getOrCreate()


def clicks(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Returns the clicks that are in a topic or come later."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    found = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    return found.selectExpr("from_json(cast(value as string), 'user string, at timestamp') as click").select("click.*")


def counting(rows: DataFrame, home: Path) -> seep.Query:
    """Returns a query that counts each user's clicks in each minute."""
    source = seep.from_spark(rows, time="at", out_of_order="10 s", checkpoint=home / "checkpoint-in")
    query = seep.Query("clicks")
    minutes = query.source("clicks", source).key_by("user").window(seep.tumbling("1 min"))
    minutes.aggregate("counter", n=seep.count()).sink("out", seep.sinks.spark(home / "spool"))
    return query


def start(query: seep.Query, spark: SparkSession, home: Path) -> seep.Run:
    """Begins, or goes on from what is stored: that is what `restore="auto"` means, which need not be said."""
    storage = StorageSettings(location=str(home / "storage"))
    return seep.launch(query, spark, nodes=3, spare=1, checkpoint=1.0, storage=storage)


def write(counts: DataFrame, servers: str, topic: str, home: Path) -> StreamingQuery:
    """Writes counts to a topic, with the user as the key of the message."""
    messages = counts.selectExpr("user as key", "to_json(struct(user, window_start as minute, n)) as value")
    writer = messages.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)
    return writer.option("checkpointLocation", str(home / "checkpoint-out")).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", required=True, help="Kafka's, as host:port,host:port")
    parser.add_argument("--home", type=Path, required=True, help="a directory that all machines see")
    parser.add_argument("--read", default="clicks", help="the topic of the clicks")
    parser.add_argument("--write", default="counts", help="the topic of the counts")
    parser.add_argument("--connector", default=pyspark.__version__, help="version of Spark's Kafka connector")
    given = parser.parse_args()
    spark = session(given.connector)
    query = counting(clicks(spark, given.servers, given.read), given.home)
    with start(query, spark, given.home) as run:
        write(run.to_spark(), given.servers, given.write, given.home)
        run.wait()


if __name__ == "__main__":
    main()
