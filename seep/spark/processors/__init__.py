"""Spark's per-key classes as operators: a `StatefulProcessor` runs as it is (`operator`), on state of `seep`'s."""
