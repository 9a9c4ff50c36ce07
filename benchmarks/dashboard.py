"""The dashboard: the CPU that it costs the driver while viewers look at the page of a large run.

The status of a thousand instances on as many nodes goes over real sockets to viewers in other processes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

# As a script, this folder is first on the path, and hides the package that is named like one of its files.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pydantic_core import to_json

from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target
from seep.dashboard.access import Access
from seep.dashboard.server import DashboardServer
from seep.dashboard.settings import DashboardSettings
from seep.record.samples import sample_of
from seep.record.status import InstanceStatus, NodeStatus, Status, operator_status
from seep.record.totals import InstanceTotals, RunTotals

TARGETS = {
    "watched_percent": Target("CPU of the driver with viewers", "% of a core", 1.0, 2.0),
}

#: Reads the stream until the server ends; prints the bytes.
_VIEWER = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.stdin.readline().strip()})
read = 0
with urllib.request.urlopen(request) as answer:
    while part := answer.read1(1 << 20):
        read += len(part)
print(read)
"""


def status_with(count: int) -> Status:
    """Returns a status with so many instances, each on a node of its own."""
    instances = tuple(_instance(index) for index in range(count))
    counted = {"counter": {index: InstanceTotals(1_200_000, 1_000, 12.5, 3, 1) for index in range(count)}}
    return Status(
        at=12.3,
        ticked=42,
        committed=40,
        rows_read=240_000_000,
        rows_per_second=2_000_000.0,
        latency={"p50": 0.031, "p95": 0.0525, "p99": 0.06, "max": 0.41},
        instances=instances,
        nodes=count,
        idle_nodes=0,
        operators=(operator_status("counter", instances, None),),
        edges={"map->counter": 2_000_000.0},
        hosts=tuple(
            NodeStatus(f"n{at}", 0.75, 2.0, 200 << 20, 8 << 20, 0.0, 1024.0, 2048.0, 4096.0) for at in range(count)
        ),
        totals=RunTotals(instances=counted),
    )


def _instance(index: int) -> InstanceStatus:
    return InstanceStatus(
        name=f"counter[{index}]#0",
        operator="counter",
        node=f"n{index}",
        phase="running",
        epoch=40,
        rows_in=1_200_000 + index,
        rows_out=1_000,
        cpu=12.5,
        utilisation=0.5 + index / 10_000,
        waiting=0,
        outbox_bytes=3 << 20,
        state_bytes=5 << 20,
        counters={"late": 12},
        rows_in_per_second=2_000.5 + index,
        rows_out_per_second=12.25,
        unsent=1,
        age=0.03,
        watermark_behind=1_500,
        index=index,
    )


class LargeRun:
    """Answers like a run with a status that is new at each request."""

    def __init__(self, count: int) -> None:
        self._status, self._number = status_with(count), 0
        self._sample = sample_of(self._status)

    def answer(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        self._number += 1
        status = replace(self._status, at=float(self._number))
        told = {"phase": "running", "failure": "", "wrong": [], "events": [], "new": [], "number": self._number}
        return {**told, "status": status.to_json(), "sample": self._sample.to_json()}


def cpu_share(seconds: float) -> float:
    """Returns the share of one core that this process takes for so many seconds."""
    cpu, begun = time.process_time(), time.monotonic()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - begun)


def milliseconds(work: Callable[[], object], times: int = 20) -> float:
    """Returns the least CPU time of a call."""
    taken = []
    for _ in range(times):
        before = time.thread_time()
        work()
        taken.append(time.thread_time() - before)
    return 1e3 * min(taken)


def measure(instances: int, viewers: int, seconds: float) -> dict[str, float]:
    run, access, status = LargeRun(instances), Access(), status_with(instances)
    answer = run.answer({})
    progress("pictures")
    measured = {
        "picture_kb": len(to_json(answer)) / 1e3,
        "status_as_values_ms": milliseconds(status.to_json),
        "sample_as_values_ms": milliseconds(sample_of(status).to_json),
        "values_as_text_ms": milliseconds(lambda: to_json(answer)),
    }
    server = DashboardServer(DashboardSettings(port=0), run, access)
    progress("a server that nobody looks at")
    measured["unwatched_percent"] = 100 * cpu_share(seconds)
    progress(f"{viewers} viewers")
    looking = [_viewer(server, access.viewer_token) for _ in range(viewers)]
    while server.feed.viewers < viewers:
        time.sleep(0.05)
    measured["watched_percent"] = 100 * cpu_share(seconds)
    server.close()
    read = [int(each.communicate(timeout=30)[0]) for each in looking]
    return measured | {"read_by_each_mb": min(read) / 1e6}


def _viewer(server: DashboardServer, token: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _VIEWER, f"{server.url}/api/v1/stream"]
    viewer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert viewer.stdin is not None
    viewer.stdin.write(token + "\n")
    viewer.stdin.flush()
    return viewer


def main() -> None:
    parser = parser_of(__doc__, "benchmarks/dashboard.py --viewers 10")
    parser.add_argument("--instances", type=int, default=1000, help="of the run (1000)")
    parser.add_argument("--viewers", type=int, default=3, help="of its page (3)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (20)")
    given = parser.parse_args()
    tell(measure(given.instances, given.viewers, given.seconds), TARGETS, given.json)


if __name__ == "__main__":
    main()
