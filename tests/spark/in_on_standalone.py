"""A driver in a process of its own: a DataFrame through a query on a Standalone cluster; its executors are other hosts.

Prints a line of JSON: whether all rows came out once, in the driver and through a data source, and the nodes' hosts.
"""

from __future__ import annotations

import json
import sys
import tempfile

import seep
from seep.spark.session import open_session
from seep.spark.standalone import LocalCluster
from tests.spark.small import for_small_data

ROWS = 10_000


def main() -> None:
    from pyspark.sql import SparkSession

    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(workers=2, cores=2) as cluster,
        open_session(master=cluster.master) as host,
    ):
        spark = for_small_data(SparkSession(host.context))
        query = seep.Query("distributed")
        rows = query.source("numbers", seep.from_spark(spark.range(0, ROWS, 1, 4).selectExpr("id as n")))
        rows.sink("out", seep.sinks.collect())
        rows.sink("spooled", seep.sinks.spark(f"{directory}/spool"))
        # Three nodes, and each worker has task slots for two: one is left for Spark's own tasks.
        with seep.launch(query, spark, nodes=3, spare=0, epoch=0.05, start_timeout=120.0) as run:
            found = [n for (n,) in run.to_batch_df(sink="spooled").collect()]
            hosts = sorted({record.vm for record in run.manager_process.nodes.values()})
            exact = [sorted(each) == list(range(ROWS)) for each in (run.result("out")["n"].to_pylist(), found)]
    sys.stdout.write(json.dumps({"exact": exact, "hosts": hosts}) + "\n")


if __name__ == "__main__":
    main()
