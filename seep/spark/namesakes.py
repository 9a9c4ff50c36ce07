"""Finds packages of other distributions with the same names as ours, such as `policies`, which break an installation.

This module must work even then, so it imports only the standard library.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from importlib.metadata import Distribution, PackagePath, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

#: All packages of the project.
PACKAGES = ("primitives", "formats", "policies", "vmpool", "seep", "lrb", "nexmark")
#: The directory of this package, where all of them should be.
HOME = Path(__file__).parents[2]
_THIS = "seep/spark/namesakes.py"


def foreign() -> list[str]:
    """Describes imported packages that are not ours: found in another directory, or overwritten in this one."""
    return [*_found_elsewhere(), *_overwritten()]


def sharing() -> list[str]:
    """Lists other distributions with a package of one of these names in the same directory, with their versions."""
    return [f"{other.name} {other.version} ({package})" for package, other in _others()]


def _found_elsewhere() -> Iterator[str]:
    for package in PACKAGES:
        spec = find_spec(package)
        places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
        if HOME / package not in places[:1]:
            found = str(places[0]) if places else "nothing"
            yield f"`import {package}` gives {found} instead of {HOME / package}: {_WAY_OUT}"


_WAY_OUT = "take the other one off the module path, or install both in environments of their own"


def _overwritten() -> Iterator[str]:
    ours = _own_distribution()
    changed = [] if ours is None else [file for file in ours.files or () if _is_changed(ours, file)]
    if ours is not None and changed:
        causes = f"; {', '.join(sharing())} has the same packages: remove it, then" if sharing() else ":"
        yield (
            f"{len(changed)} files in {HOME} are not as they were installed, such as {changed[0]}{causes} "
            f"pip install --force-reinstall --no-deps {ours.name}"
        )


def _is_changed(ours: Distribution, file: PackagePath) -> bool:
    if file.hash is None or file.hash.mode != "sha256" or file.parts[0] not in PACKAGES:
        return False
    try:
        content = Path(str(ours.locate_file(file))).read_bytes()
    except OSError:
        return True
    return urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode() != file.hash.value


def _own_distribution() -> Distribution | None:
    """Returns the distribution that contains this file; none in a checkout."""
    candidates = map(distribution, packages_distributions().get("seep", ()))
    return next((each for each in candidates if _has(each, _THIS) and _is_here(each)), None)


def _others() -> list[tuple[str, Distribution]]:
    owners, ours = packages_distributions(), _own_distribution()
    return [
        (package, other)
        for package in PACKAGES
        for other in map(distribution, dict.fromkeys(owners.get(package, ())))
        if ours is not None and other.name != ours.name and _is_here(other)
    ]


def _has(candidate: Distribution, file: str) -> bool:
    return any(path.as_posix() == file for path in candidate.files or ())


def _is_here(candidate: Distribution) -> bool:
    return Path(str(candidate.locate_file(""))).resolve() == HOME.resolve()
