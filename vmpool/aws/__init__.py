"""Amazon's interfaces as pool and deployment need them: calls with clear errors, and instances found by tag."""
