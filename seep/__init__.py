"""Stateful stream processing that can grow, shrink, heal and rebalance while it runs."""
