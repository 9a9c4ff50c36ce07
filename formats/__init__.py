"""How things are written down: state in storage (Avro files, blobs, manifests), and settings that people write."""
