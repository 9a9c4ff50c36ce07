"""Checks answers: a plain reference of the rules, and the comparison of outputs with it."""
