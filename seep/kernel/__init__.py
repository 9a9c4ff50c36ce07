"""The kernel: runs the protocol's machines in one process, on one thread and without a clock.

`seep.testing` runs users' programs in it, and the simulator random schedules. It has what both need: manager, nodes,
mail between them, storage, and an agenda. Faults and their times do not belong here.
"""
