"""The query API: what users write, and the program that is made of it."""
