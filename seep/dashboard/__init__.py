"""The dashboard: the live page and the REST API of a run, and who may use them."""
