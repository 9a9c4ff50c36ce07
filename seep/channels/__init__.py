"""Channels: how processes of a run send each other letters, rows and calls, over Arrow Flight; and who may."""
