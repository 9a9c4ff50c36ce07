"""NEXMark: generator and queries."""
