"""Rows from a DataFrame: Spark's tasks push them to nodes, which keep them until no epoch can be read again.

The pushed rows are the source's replay log. A task pushes the rows of one partition as a *piece*, completely or not at
all, to two nodes, or to a node and the run's storage (`push`, `intake`). When all pieces of a batch are kept, the
driver *admits* the batch: it gets the next number in the source's *ledger*, and only then Spark learns that its batch
is done. A source instance reads admitted batches in order (`reader`); its positions, in the source log, are numbers of
batches and rows in them. Batches that no replay can need any more are dropped (`keeper`).
"""
