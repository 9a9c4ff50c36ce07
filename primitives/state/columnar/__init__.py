"""Compiled in-memory structures of columns, which the containers for high throughput use."""
