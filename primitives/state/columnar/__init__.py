"""Compiled in-memory structures of columns, of which the containers for high throughput are made."""
