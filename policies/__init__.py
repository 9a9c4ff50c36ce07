"""Pure decisions: when and where to scale, migrate, balance and place. Metrics in, plans out."""
