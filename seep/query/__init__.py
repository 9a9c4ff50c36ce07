"""The query API: what users write, and its compilation to a program."""
