"""The protocol as pure state machines: message in, effects out; no threads, no clock, no sockets."""
