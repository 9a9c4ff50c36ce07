"""A driver in a process of its own, as Spark allows one session in each: a pool of real workers, one of them killed.

`on_standalone.py DIRECTORY`: starts a master without workers, has the pool start two VMs with a node on each, kills one
VM, waits for its replacement, gives all back, and prints what came of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from seep.channels.process import ProcessId, children
from seep.spark.fleet import Fleet
from seep.spark.session import open_session
from seep.spark.standalone import LocalCluster
from tests.spark.beacons import await_beacon, beacon
from tests.waiting import eventually
from vmpool.events import PoolEvent
from vmpool.keeper import PoolKeeper
from vmpool.pool import Pool
from vmpool.settings import PoolSettings
from vmpool.standalone import StandaloneProvider


class Registrar:
    """Tells the keeper of nodes when their files appear: what the manager does in a run."""

    def __init__(self, keeper: PoolKeeper, directory: Path) -> None:
        self._keeper, self._directory = keeper, directory
        self.hosts: dict[str, str] = {}  #: node -> where it is
        self.processes: dict[str, ProcessId] = {}

    def look(self) -> None:
        for path in self._directory.iterdir():
            order, _, attempt = path.name.partition(".")
            if attempt.isdecimal() and path.name not in self.hosts:
                node = await_beacon(self._directory, order, int(attempt))
                self.hosts[path.name], self.processes[path.name] = node.host, node.process
                self._keeper.joined(path.name, order, node.host)

    def await_warm(self, count: int, unlike: str | None = None) -> dict[str, str]:
        """VM -> host of its node, once so many are warm, none of which is `unlike`."""

        def are_there() -> bool:
            self.look()
            found = {self._keeper.vm_of(node) for node in self._keeper.warm()}
            return len(found) == count and unlike not in found

        assert eventually(are_there), "the pool does not fill"
        return {str(self._keeper.vm_of(node)): self.hosts[node] for node in self._keeper.warm()}


def kill_vm(worker: int) -> None:
    """The worker, and its executor with it, as if the machine had gone."""
    for pid in (worker, *children([worker])):
        os.kill(pid, signal.SIGKILL)


def main(directory: Path) -> dict[str, object]:
    notes: list[PoolEvent] = []
    with LocalCluster(workers=0) as cluster, open_session(master=cluster.master) as host:
        fleet = Fleet(host.context, beacon(), str(directory), query="test", on_ended=lambda _: None)
        provider = StandaloneProvider(cluster.master, cores=1)
        keeper = PoolKeeper(
            Pool(PoolSettings(provider="standalone", size=2, reserve=0)),
            provider,
            order=fleet.start,
            cancel=fleet.cancel,
            used=frozenset,
            tell=notes.append,
            poll=0.1,
        ).start()
        try:
            return use(keeper, provider, Registrar(keeper, directory), fleet.stop, notes)
        finally:
            fleet.stop()
            keeper.close()


def use(
    keeper: PoolKeeper,
    provider: StandaloneProvider,
    registrar: Registrar,
    stop: Callable[[], object],
    notes: list[PoolEvent],
) -> dict[str, object]:
    before = registrar.await_warm(2)
    killed = provider.pids()["vm-1"]
    processes = [ProcessId.of(pid) for pid in (*provider.pids().values(), *children(provider.pids().values()))]
    kill_vm(killed)
    after = registrar.await_warm(2, unlike="vm-1")
    processes += [ProcessId.of(pid) for pid in (*provider.pids().values(), *children(provider.pids().values()))]
    stop()
    closed = keeper.close()
    nodes = [process for process in registrar.processes.values() if process.alive()]
    return {
        "before": before,
        "after": after,
        "lost": [note.vm for note in notes if note.kind == "vm lost"],
        "closed": closed,
        "left": len([process for process in processes if process.alive()] + nodes),
        "files": [str(path) for path in Path(os.environ["TMPDIR"]).glob("seep-vms-*")],
        "vms": sorted(keeper.vm_seconds()),
    }


if __name__ == "__main__":
    told = main(Path(sys.argv[1]))
    sys.stdout.write(json.dumps(told) + "\n")
