"""Durable storage of checkpoints and savepoints: local disk, S3, Google Cloud Storage, HDFS, memory."""
