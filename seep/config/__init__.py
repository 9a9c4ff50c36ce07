"""Settings files: their models, the checks of a file, and their schema."""
