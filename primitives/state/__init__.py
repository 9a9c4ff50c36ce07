"""State containers: state per key, grouped by slot, with snapshot, restore, drop and size."""
