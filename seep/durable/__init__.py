"""Durable state of a running query: its parts of checkpoints, and its backups, in a storage."""
