"""Spark's Python daemon, made ready: the nodes that it forks find everything imported and compiled.

A node from a fresh process imports for a second and loads kernels for half a second more, and on a small machine a node
that starts takes that time from those that work. Forked from here it starts in milliseconds, and shares the memory.
"""

from __future__ import annotations

import sys


def main() -> None:
    """What `python -m pyspark.daemon` does, after the preparations."""
    from pyspark import daemon

    import seep.runtime.node_main  # noqa: F401  (all that a node needs)
    from seep.runtime.node import prepare_process

    prepare_process()
    daemon.manager()


if __name__ == "__main__":
    sys.modules.setdefault("seep.spark.daemon", sys.modules["__main__"])
    main()
