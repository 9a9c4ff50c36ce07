"""Balancing: which slots move between instances so that none has much more to do than others (AutoFlow and more)."""
