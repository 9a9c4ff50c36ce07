"""Clusters in the cloud: creation, status, resizing, and removal of exactly what was created."""
