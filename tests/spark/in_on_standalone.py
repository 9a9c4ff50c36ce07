"""A driver in a process of its own: a DataFrame through a query on a Standalone cluster; its executors are other hosts.

Prints a line of JSON: whether all rows came out once, and the hosts of the nodes.
"""

from __future__ import annotations

import json
import sys

import seep
from seep.spark.session import open_session
from seep.spark.standalone import LocalCluster

ROWS = 10_000


def main() -> None:
    from pyspark.sql import SparkSession

    with LocalCluster(workers=2, cores=4) as cluster, open_session(master=cluster.master) as host:
        df = SparkSession(host.context).range(0, ROWS, 1, 4).selectExpr("id as n")
        query = seep.Query("distributed")
        query.source("numbers", seep.from_spark(df)).sink("out", seep.sinks.collect())
        with seep.launch(query, host.context, start_timeout=120.0) as run:
            run.wait(120)
            hosts = sorted({record.vm for record in run.manager_process.nodes.values()})
            exact = sorted(run.result("out")["n"].to_pylist()) == list(range(ROWS))
    sys.stdout.write(json.dumps({"exact": exact, "hosts": hosts}) + "\n")


if __name__ == "__main__":
    main()
