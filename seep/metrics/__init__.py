"""Metrics: what a monitoring system scrapes from a run; defined as data, and read from the record."""
