"""The record of a run: what it knows about itself, in one place, typed and bounded."""
