"""Settings of Spark for a few thousand rows: to compile code for a query takes longer than to run it."""

from __future__ import annotations

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.pollingDelay": "100ms",  # a stream asks for news so often
}


#: The same for `spark-submit`, with a JVM that optimises little.
SUBMITTED = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
SUBMITTED += ["--conf", "spark.ui.enabled=false", "--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]


def for_small_data(spark: SparkSession) -> SparkSession:
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    return spark
