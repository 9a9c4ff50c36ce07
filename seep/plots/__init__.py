"""Plots of a run's report: one page of HTML with drawings in it, that needs nothing else to be looked at."""
