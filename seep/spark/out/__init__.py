"""From seep to Spark: the rows of a sink as DataFrames, streaming and batch, and through Spark's own writers."""
