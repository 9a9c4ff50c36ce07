"""Where the tuples of a run come from: a file, recorded traffic, or Spark."""
