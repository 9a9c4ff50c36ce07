"""Aggregation: aggregates of all rows of a key, over windows of event time, over sessions, and the highest rows."""
