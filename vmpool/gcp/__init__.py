"""Google Cloud's Compute API as pool and deployment need it."""
