"""What can be done with a cluster, whichever cloud it is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

Tell = Callable[[str], None]


class CloudCluster(Protocol):
    """A cluster at whichever provider, as the command line sees it."""

    @property
    def name(self) -> str:
        """As in the file."""
        ...

    @property
    def hourly(self) -> Mapping[str, float | None]:
        """Label -> dollars per hour while it is up; None if no price is known."""
        ...

    def plan(self) -> list[str]:
        """What `up` would do, a line each."""
        ...

    def up(self) -> int:
        """Makes what is missing; returns how many resources that were."""
        ...

    def status(self) -> dict[str, str | None]:
        """The id of each resource, None for those that are not there."""
        ...

    def scale(self, workers: int) -> int:
        """Starts or ends workers until there are so many; returns by how many that changed them."""
        ...

    def down(self) -> int:
        """Removes all that is there; returns how many resources that were."""
        ...

    def master_url(self) -> str | None:
        """Spark's master, such as spark://10.0.0.5:7077; None if it is not there."""
        ...
