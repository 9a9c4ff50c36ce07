"""From seep to Spark: the rows of a sink as DataFrames, streaming and batch, and to Spark's own writers."""
