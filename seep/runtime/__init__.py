"""The runtime: the real shell around the protocol, with processes, threads, channels and a clock."""
