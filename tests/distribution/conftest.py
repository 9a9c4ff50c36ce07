"""One wheel for all tests that look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distribution.wheels import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))
