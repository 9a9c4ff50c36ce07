"""Storage that a running query writes to: its parts of checkpoints in storage, and its backups."""
