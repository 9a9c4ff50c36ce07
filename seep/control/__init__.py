"""Control: the steward, which decides what changes while a query runs. Pure: no threads, no clock, no sockets."""
