"""Amazon's interfaces for the pool and deployment: calls with clear errors, and instances found by tag."""
