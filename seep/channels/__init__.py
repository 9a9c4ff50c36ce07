"""Channels between the processes of a run, over Arrow Flight: letters, rows, calls, and their security."""
