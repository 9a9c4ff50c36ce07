"""What commands draw on a terminal: views of a run, panels, tables and progress."""
