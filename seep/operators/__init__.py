"""Operators on Arrow batches: what users put between sources and sinks."""
