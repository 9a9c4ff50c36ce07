"""The record of a run: what a run knows about itself, typed and bounded, and without threads or a clock of its own."""
