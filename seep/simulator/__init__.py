"""A deterministic shell around the protocol: seeded schedules with faults, checked against a failure-free run."""
