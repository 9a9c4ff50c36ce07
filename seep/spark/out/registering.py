"""Registers `format("seep")` in a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from seep.spark.out.source import SeepDataSource
from seep.spark.session import use_this_python
from seep.spark.shipping import ship_to_path


def register(spark: SparkSession) -> None:
    """Lets `spark.readStream.format("seep").load(path)` read the rows of `seep.sinks.spark(path)`."""
    use_this_python(spark.sparkContext)
    ship_to_path(spark.sparkContext)
    spark.dataSource.register(SeepDataSource)
