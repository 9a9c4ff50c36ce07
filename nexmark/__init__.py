"""NEXMark: event generator and queries."""
