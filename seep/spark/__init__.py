"""Spark as the host: sessions, checks before a run, and nodes as long-running tasks."""
