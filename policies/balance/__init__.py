"""Who gives which slots to whom so that no instance has much more to do than the others (AutoFlow, and beyond it)."""
