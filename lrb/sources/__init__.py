"""The sources of a run's tuples: a file, recorded traffic, or Spark."""
