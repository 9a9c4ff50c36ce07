"""Reports: what a run told about itself, as text, charts and one page of HTML."""
