"""Explicit operator state and the operations on it: the algorithms of the papers, pure (no Spark, no sockets)."""
