"""Containers with state on local disk: in RocksDB, or in files of unused slots."""
