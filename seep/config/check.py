"""Checking a settings file, further than its fields: whether what it names is there and takes what it is given.

Nothing is started, and nobody is asked: a file can be checked without a cluster, a cloud, or credentials for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from formats.import_paths import imported
from formats.settings import Section, WrongSettings, checked
from policies.balance.registry import make_balancer
from policies.scaling.registry import make_policy
from primitives.errors import UserError
from seep.config.files import content_of
from seep.config.kinds import ConfigKind, kind_of
from seep.config.policy import PolicyFile
from vmpool.settings import PoolSettings


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """On one file."""

    kind: ConfigKind
    settings: int  #: that it gives
    problems: tuple[str, ...] = ()  #: each begins with the path of its field


class NoSettings(Section):
    """Of a provider that takes none."""


#: Provider -> module and name of what it takes as `pool.settings`; imported only when a file names it.
PROVIDERS = {
    "spark": (__name__, "NoSettings"),
    "standalone": ("vmpool.standalone", "StandaloneSettings"),
    "ec2": ("vmpool.aws.provider", "Ec2PoolSettings"),
    "gce": ("vmpool.gcp.settings", "GceSettings"),
}


def verdict(path: Path) -> FileVerdict:
    """All that can be said of a file before a query runs or a cluster is made; UserError if it cannot be read."""
    content = content_of(path)
    kind = kind_of(content)
    try:
        problems = tuple(_deeper(checked(kind.model, content, str(path))))
    except WrongSettings as wrong:
        problems = wrong.problems
    return FileVerdict(kind, _count(content), problems)


def _deeper(file: Section) -> Iterator[str]:
    if isinstance(file, PolicyFile):
        yield from _of_provider(file.pool)
        yield from _of_making(lambda: make_balancer(file.balance))
        yield from _of_making(lambda: make_policy(file.scaling))


def _of_making(make: Callable[[], object]) -> Iterator[str]:
    try:
        make()
    except WrongSettings as wrong:
        yield from wrong.problems
    except UserError as reason:
        yield str(reason)


def _of_provider(pool: PoolSettings) -> Iterator[str]:
    """One of the user's own is only looked for: to make it may well be to sign in somewhere."""
    try:
        if ":" in pool.provider:
            imported(pool.provider, "pool.provider")
        else:
            checked(_settings_of_provider(pool.provider), pool.settings, pool.provider)
    except WrongSettings as wrong:
        yield from (f"pool.settings.{problem}" for problem in wrong.problems)
    except UserError as reason:
        yield str(reason)


def _settings_of_provider(name: str) -> type[Section]:
    if name not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise UserError(f"pool.provider is {name!r}; choose {known}, or a class of your own as module:Class")
    module, model = PROVIDERS[name]
    found: type[Section] = getattr(import_module(module), model)
    return found


def _count(content: Any) -> int:
    """Values that are given, at any depth.

    >>> _count({"run": {"epoch": "20ms", "parallelism": {"a": 2, "b": 3}}, "pool": {}})
    3
    """
    return sum(map(_count, content.values())) if isinstance(content, Mapping) else int(content is not None)
