"""The dashboard: a live page and a REST API, by which a run is watched and controlled."""
