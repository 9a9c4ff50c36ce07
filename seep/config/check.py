"""Checks settings files beyond their fields: whether the policies and providers that they name exist and accept them.

The checks start nothing and send nothing: they need no cluster, no cloud, and no credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.settings import Section, WrongSettings, checked, imported
from policies.balance.registry import make_balancer
from policies.scaling.registry import make_policy
from primitives.errors import UserError
from seep.config.files import content_of
from seep.config.kinds import ConfigKind, kind_of
from seep.config.policy import PolicyFile
from vmpool.registry import settings_model
from vmpool.settings import PoolSettings


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """The result of the check of one file."""

    kind: ConfigKind
    settings: int  #: the number of settings in it
    problems: tuple[str, ...] = ()  #: each begins with the path of its field


def verdict(path: Path) -> FileVerdict:
    """Checks a file as far as possible without running anything; raises UserError if it cannot be read."""
    content = content_of(path)
    kind = kind_of(content)
    try:
        problems = tuple(_problems(checked(kind.model, content, str(path))))
    except WrongSettings as wrong:
        problems = wrong.problems
    return FileVerdict(kind, _count(content), problems)


def _problems(file: Section) -> Iterator[str]:
    if isinstance(file, PolicyFile):
        yield from _provider_problems(file.pool)
        yield from _problems_of_making(lambda: make_balancer(file.balance))
        yield from _problems_of_making(lambda: make_policy(file.scaling))


def _problems_of_making(make: Callable[[], object]) -> Iterator[str]:
    try:
        make()
    except WrongSettings as wrong:
        yield from wrong.problems
    except UserError as reason:
        yield str(reason)


def _provider_problems(pool: PoolSettings) -> Iterator[str]:
    """Checks a provider. A user's own is only imported, because making it might connect to a cloud."""
    try:
        if ":" in pool.provider:
            imported(pool.provider, "pool.provider")
        else:
            checked(settings_model(pool.provider), pool.settings, pool.provider)
    except WrongSettings as wrong:
        yield from (f"pool.settings.{problem}" for problem in wrong.problems)
    except UserError as reason:
        yield str(reason)


def _count(content: Any) -> int:
    """Counts the values that are given, at any depth.

    >>> _count({"run": {"epoch": "20ms", "parallelism": {"a": 2, "b": 3}}, "pool": {}})
    3
    """
    return sum(map(_count, content.values())) if isinstance(content, Mapping) else int(content is not None)
