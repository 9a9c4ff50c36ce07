"""The benchmark of Linear Road's traffic measures what it has targets for."""

from __future__ import annotations

import pytest

from benchmarks import linear_road
from lrb.generator import TrafficSettings


@pytest.mark.acceptance
def test_every_target_is_measured() -> None:
    measured = linear_road.run(TrafficSettings(seconds=60))
    assert measured.keys() == linear_road.TARGETS.keys()
    assert min(measured.values()) > 0
