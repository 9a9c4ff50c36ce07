"""The node: one process that hosts instances of operators, measures them, and keeps backups for other nodes."""
