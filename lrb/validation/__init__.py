"""Checks of answers: a plain reference of the rules, and what compares outputs with it."""
