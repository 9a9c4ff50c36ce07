"""Clusters in the cloud: brought up, watched, resized and taken down exactly as they were brought up."""
