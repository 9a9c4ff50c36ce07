"""Scaling: when operators get more or fewer instances; the detector, the policies, and the governor."""
