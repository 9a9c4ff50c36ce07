"""Rows, for sources, operators and sinks: batches, their times and types, positions of sources, rates."""
