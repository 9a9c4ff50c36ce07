"""Reports of runs as text, charts and one page of HTML."""
