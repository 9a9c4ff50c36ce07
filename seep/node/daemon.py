"""Spark's Python daemon, made ready: the nodes that it forks find everything imported and compiled.

A node from a fresh process imports for a second and loads kernels for half a second more, and on a small machine a node
that starts takes that time from those that work. Forked from here it starts in milliseconds, and shares the memory.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

#: What forked processes import: Spark's for any task, a node's for any query, and what modules of queries name.
PREPARED = ("pyspark.worker", "seep.node.main", "seep.runs.run", "seep.query.query")


def main() -> None:
    """What `python -m pyspark.daemon` does, after the preparations."""
    leave_out_archives()
    from pyspark import daemon

    from seep.node.node import prepare_process

    for name in PREPARED:
        importlib.import_module(name)
    prepare_process()
    daemon.manager()


def leave_out_archives() -> None:
    """Takes Spark's zips and jar off the path where pyspark is installed: every fork would read their lists anew."""
    path = sys.path[:]
    sys.path[:] = [place for place in path if not place.endswith((".zip", ".jar"))]
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("py4j") is None:
        sys.path[:] = path
    for place in sys.path_importer_cache.keys() - set(sys.path):
        del sys.path_importer_cache[place]


if __name__ == "__main__":
    sys.modules.setdefault("seep.node.daemon", sys.modules["__main__"])
    main()
