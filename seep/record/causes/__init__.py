"""What followed from what in a run: stories in words, and traces as trees of spans."""
