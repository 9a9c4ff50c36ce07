"""The interface of a cluster in any cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

Tell = Callable[[str], None]


class CloudCluster(Protocol):
    """A cluster at any provider, for the command line."""

    @property
    def name(self) -> str:
        """The name in the file."""
        ...

    @property
    def hourly(self) -> Mapping[str, float | None]:
        """Label -> dollars per hour while it is up; None if no price is known."""
        ...

    def plan(self) -> list[str]:
        """Returns the actions of `up`, a line each."""
        ...

    def up(self) -> int:
        """Makes missing resources; returns their number."""
        ...

    def status(self) -> dict[str, str | None]:
        """Returns the id of each resource, None for missing ones."""
        ...

    def scale(self, workers: int) -> int:
        """Starts or ends workers until there are `workers`; returns how many it started or ended."""
        ...

    def down(self) -> int:
        """Removes all resources; returns their number."""
        ...

    def master_url(self) -> str | None:
        """Returns Spark's master, such as spark://10.0.0.5:7077; None if there is none."""
        ...
