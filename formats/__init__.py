"""Formats of stored data and text: state in storage (Avro files, blobs, manifests), and settings."""
