"""Log lines: what the processes of a run tell Python's `logging`, and the newest of these lines for `seep logs`."""
