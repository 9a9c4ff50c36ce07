"""Rows: what sources, operators and sinks share: batches, their times and types, positions of sources, rates."""
