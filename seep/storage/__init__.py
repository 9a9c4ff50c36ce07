"""Durable storage: checkpoints and savepoints of queries, at a local disk, S3, Google Cloud Storage, HDFS or in memory."""
