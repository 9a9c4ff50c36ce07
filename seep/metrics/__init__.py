"""Metrics and traces: what monitoring systems get from a run; defined as data, and read from the record."""
