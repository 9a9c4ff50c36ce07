"""Containers that keep state on local disk: in RocksDB, or in files of slots that nobody uses."""
