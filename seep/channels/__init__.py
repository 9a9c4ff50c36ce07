"""Channels between the processes of a run, over Arrow Flight: letters, rows, state, calls, and their security."""
