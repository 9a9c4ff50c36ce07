"""The driver: the manager's process, with its event loop, its nodes, its checkpoints and the steward's shell."""
