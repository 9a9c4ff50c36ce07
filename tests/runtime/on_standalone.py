"""A driver in a process of its own, as Spark allows one session in each: a query on a Standalone cluster.

Starts a master and two workers, kills the executor JVM that the counter's node belongs to, and prints what came of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys

import seep
from seep.spark.standalone import LocalCluster
from tests.runtime.counting import RATE, committed, counting, expected, found, idle, recovered


def main() -> None:
    with LocalCluster(workers=2, cores=4) as cluster:
        # more nodes than one executor has slots: there is always a node on the other for the backup
        options = {"nodes": 6, "epoch": 0.05, "checkpoint": 0.5, "start_timeout": 120.0}
        with seep.launch(counting(), master=cluster.master, rate=seep.Rate(RATE), **options) as run:
            committed(run, 30)
            placement = run.placement
            host = run.nodes[placement["counter[0]"]].vm
            (executor,) = cluster.executors()[host]
            os.kill(executor, signal.SIGKILL)
            recovered(run)
            committed(run, 20)
            idle(run)
            hosts = {record.vm for record in run.nodes.values()}
            run.finish()
            run.wait(120)
            told = {
                "equal": found(run) == expected(run),
                "rows": run.rows_read,
                "lost": len(run.events.of("node lost")),
                "hosts": sorted(hosts),
                "used": sorted(set(placement.values())),
            }
        logs = [path.read_text(errors="replace") for path in cluster._directory.rglob("stderr")]
        begun = re.findall(r"INFO seep\.node run=\S+ node=(\w+): node begins: process ", "\n".join(logs))
        told["logged"] = sorted(begun)
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
