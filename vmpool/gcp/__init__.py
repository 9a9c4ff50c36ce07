"""Google Cloud's Compute API for the pool and deployment."""
