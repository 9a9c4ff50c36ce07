"""Sinks: where rows go to, each epoch exactly once."""
