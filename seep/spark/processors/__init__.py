"""Spark's per-key classes as operators: a `StatefulProcessor` runs unchanged (`operator`), with its state in `seep`."""
