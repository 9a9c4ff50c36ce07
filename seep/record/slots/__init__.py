"""Rows by slot: the counts for balancers, and the rates for people."""
