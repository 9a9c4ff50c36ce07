"""Workloads: ready-made queries with data that they make themselves, and an independent check of their results."""
