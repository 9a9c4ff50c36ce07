"""Runs: what a user launches and controls: a run, its handles, the checkpoint it begins from, and remote control."""
