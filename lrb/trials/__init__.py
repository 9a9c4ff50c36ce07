"""The L-rating: trials of the query at full rate, and their initial state."""
