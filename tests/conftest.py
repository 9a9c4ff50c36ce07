"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# The first example of a test may compile a Numba kernel, which takes longer than any deadline that would be of use.
# Everything else stays as Hypothesis has it, its own settings for CI included.
settings.register_profile("seep", settings(), deadline=None)
settings.load_profile("seep")
