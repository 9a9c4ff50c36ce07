"""Runs: what a user launches and holds: a run, its handles, where it begins, and how it is told something."""
