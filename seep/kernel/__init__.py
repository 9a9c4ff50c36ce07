"""The kernel: runs the protocol's machines in one process, on one thread and without a clock.

`seep.testing` runs programs of users in it, and the simulator random schedules. What belongs here is what both need:
manager, nodes, mail between them, storage, and an agenda. What goes wrong, and when, does not.
"""
