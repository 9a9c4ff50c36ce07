"""Compiled structures of columns in memory, which the containers for throughput are made of."""
