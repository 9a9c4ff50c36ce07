"""The command line `seep`."""
