"""The policy `manual`: operators are scaled by command only."""

from __future__ import annotations

from policies.observation import History
from policies.scaling.decision import Decision


class Manual:
    """Decides nothing. The bounds of operators still hold."""

    def decide(self, history: History) -> list[Decision]:  # noqa: ARG002  # the shape of every policy
        return []
