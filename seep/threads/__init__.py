"""Threads: an event loop, a worker, a mailbox and requests; every thread of a run is one of these."""
