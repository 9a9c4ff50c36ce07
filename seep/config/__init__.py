"""Settings files: what may stand in them, what is wrong with one, and what they all can say."""
