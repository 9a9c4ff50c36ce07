"""Containers with state on local disk: in RocksDB, or in files of slots that are not in use."""
