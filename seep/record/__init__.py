"""The record of a run: what a run knows about itself, typed and bounded; it has no thread and no clock."""
