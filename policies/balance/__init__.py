"""Balancing: decides which slots move between instances, so that none has much more work than others."""
