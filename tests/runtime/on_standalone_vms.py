"""A driver in a process of its own: a query on VMs that the pool starts, each a worker of a Standalone cluster.

Scales out onto a new VM, kills a VM (worker and executor), and prints what came of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import seep
from seep.channels.process import children
from seep.spark.standalone import LocalCluster
from tests.runtime.counting import RATE, awaited, committed, counting, expected, found, idle, recovered
from vmpool.settings import PoolSettings

OPTIONS = {"epoch": 0.05, "checkpoint": 0.5, "start_timeout": 120.0, "nodes": 1}


def main() -> None:
    pool = PoolSettings(provider="standalone", size=1, reserve=0)
    with LocalCluster(workers=0) as cluster:
        with seep.launch(counting(), master=cluster.master, rate=seep.Rate(RATE), pool=pool, **OPTIONS) as run:
            committed(run, 20)
            before = {run.nodes[node].vm for node in run.placement.values()}
            run.scale("counter", 2)
            awaited(run, lambda: bool(run.events.of("scaled out")))
            grown = run.nodes[run.placement["counter[1]"]].vm
            committed(run, 20)
            idle(run)
            end_vm(grown)
            recovered(run)
            awaited(run, lambda: bool(run.events.of("vm lost")))
            committed(run, 20)
            after = {run.nodes[node].vm for node in run.placement.values()}
            idle(run)
            warm = {record.vm for record in run.nodes.values()} - after
            run.finish()
            run.wait(120)
            told = {
                "equal": found(run) == expected(run),
                "rows": run.rows_read,
                "before": sorted(before),
                "grown": grown,
                "after": sorted(after),
                "warm": sorted(warm),
                "vm_seconds": run.report()["summary"]["vm_seconds"],
            }
        told["left"] = workers_at("127.0.0.")
    sys.stdout.write(json.dumps(told) + "\n")


def end_vm(host: str) -> None:
    """`kill -9` of the worker at an address and of its executor, as when a machine loses its power."""
    (worker,) = workers_at(host)
    for pid in [worker, *children([worker])]:
        os.kill(pid, signal.SIGKILL)


def workers_at(host: str) -> list[int]:
    """Workers that this driver has started, by address."""
    found = []
    for pid in children([os.getpid()]):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode().split("\0")
        if any(word.endswith("worker.Worker") for word in words) and any(word.startswith(host) for word in words):
            found.append(pid)
    return found


if __name__ == "__main__":
    main()
