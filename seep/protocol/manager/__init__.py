"""The manager's machines: plans, recovery, cuts, replicas, and which epochs are safe."""
