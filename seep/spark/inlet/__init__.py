"""Rows from a DataFrame: Spark's tasks push them to nodes, which keep them until no epoch can be read again.

What is pushed is the source's replay log. A task pushes the rows of one partition as a *piece*, whole or not at all,
to two nodes, or to a node and the run's storage (`push`, `intake`). When all pieces of a batch are kept, the driver
*admits* it: it gets the next number in the source's *ledger*, and only then Spark is told that its batch is done. A
source instance reads admitted batches in order (`reader`); its positions, in the source log, are numbers of batches and
rows in them. What every epoch that can be asked for again has behind it is let go of (`keeper`).
"""
