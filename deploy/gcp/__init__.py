"""Clusters in Google Cloud."""
