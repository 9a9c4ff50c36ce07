"""The L-rating: trials of the query at full rate, and the state that they begin with."""
