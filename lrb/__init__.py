"""Linear Road: traffic generator, operators, query, validator, and the L-rating."""
