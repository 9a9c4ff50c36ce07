"""A driver in a process of its own, for tests that end it or need another master: `driver.py DIRECTORY [MASTER]`.

Starts three nodes, prints a line of JSON for each thing that happens, and stops when its input ends.
"""

from __future__ import annotations

import json
import os
import sys

from seep.channels.process import children
from seep.spark.capacity import await_capacity
from seep.spark.fleet import Fleet
from seep.spark.session import open_session
from tests.spark.beacons import beacon


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(directory: str, master: str | None = None) -> None:
    with open_session(master=master) as host:
        capacity = await_capacity(host.context, 4, 60.0)
        fleet = Fleet(
            host.context, beacon(), directory, query="test", on_ended=lambda it: say(ended=it.order, reason=it.reason)
        )
        say(orders=fleet.start(3), slots=capacity.slots, jvms=children([os.getpid()]))
        for line in sys.stdin:
            say(failures=fleet.failures(line.strip()))
        say(left=fleet.stop(30.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
