"""Has a Spark session know `format("seep")`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from seep.spark.out.source import SeepDataSource
from seep.spark.session import use_this_python
from seep.spark.shipping import ship_to_path


def register(spark: SparkSession) -> None:
    """From now on `spark.readStream.format("seep").load(path)` reads what `seep.sinks.spark(path)` puts out."""
    use_this_python(spark.sparkContext)
    ship_to_path(spark.sparkContext)
    spark.dataSource.register(SeepDataSource)
