"""Amazon's interfaces, as far as the pool and the deployment need them: calls with clear errors, instances by tag."""
