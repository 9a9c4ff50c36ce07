"""Pure decisions: when and where to scale, migrate, balance and place. They turn measurements into plans."""
