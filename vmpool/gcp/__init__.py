"""Google Cloud: its Compute API, and what pool and deployment both know of it."""
