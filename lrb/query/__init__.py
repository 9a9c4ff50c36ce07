"""The query of Linear Road: SEEP's seven operators, from input tuples to the four types of answers."""
