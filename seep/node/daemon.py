"""Spark's Python daemon, prepared: the nodes that it forks have everything imported and compiled.

A node in a new process imports for a second and loads kernels for half a second more, and on a small machine this time
is taken from nodes that work. Forked from this daemon, it starts in milliseconds, and shares the memory.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

#: Modules that forked processes need: those of Spark's tasks, of nodes, and of queries.
PREPARED = ("pyspark.worker", "seep.node.main", "seep.running.run", "seep.query.query")


def main() -> None:
    """Prepares the process, and then runs `python -m pyspark.daemon`."""
    leave_out_archives()
    from pyspark import daemon

    from seep.node.node import prepare_process

    for name in PREPARED:
        importlib.import_module(name)
    prepare_process()
    daemon.manager()


def leave_out_archives() -> None:
    """Removes Spark's archives from the module path if pyspark is installed: every fork would read their indexes."""
    path = sys.path[:]
    sys.path[:] = [place for place in path if not place.endswith((".zip", ".jar"))]
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("py4j") is None:
        sys.path[:] = path
    for place in sys.path_importer_cache.keys() - set(sys.path):
        del sys.path_importer_cache[place]


if __name__ == "__main__":
    sys.modules.setdefault("seep.node.daemon", sys.modules["__main__"])
    main()
