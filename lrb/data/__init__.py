"""The files of Linear Road (tuples, history and answers): reads, checks and writes them."""
