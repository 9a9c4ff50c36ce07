"""Commands that watch and operate a run, from this machine or over HTTP from any other."""
