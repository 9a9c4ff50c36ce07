"""Linear Road: generator, operators, query, validator, L-rating."""
