"""Aggregation by key: of all rows, over windows of event time, and over sessions; and the highest rows of a window."""
