"""Sources: where rows come from, readable again from any recorded position."""
