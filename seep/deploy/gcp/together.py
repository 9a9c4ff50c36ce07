"""Makes or removes several resources at a time, because each call takes a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from seep.deploy.cluster import Tell
from seep.deploy.gcp.owned import Owned

_AT_A_TIME = 8


def put_right(wanted: Iterable[Owned], tell: Tell) -> int:
    """Makes, starts or replaces resources as needed; returns their number. They must not depend on each other."""
    needs = [(each, each.need()) for each in wanted]
    for each in _with("keep", needs):
        tell(f"keep {each.label}")
    _together("delete", Owned.delete, _with("replace", needs), tell)
    _together("start", Owned.start, _with("start", needs), tell)
    _together("create", Owned.create, [*_with("replace", needs), *_with("create", needs)], tell)
    return len(needs) - len(_with("keep", needs))


def remove(resources: Iterable[Owned], tell: Tell) -> int:
    """Removes existing resources; returns their number."""
    there = [each for each in resources if each.find()]
    _together("delete", Owned.delete, there, tell)
    return len(there)


def _with(need: str, needs: list[tuple[Owned, str]]) -> list[Owned]:
    return [each for each, found in needs if found == need]


def _together(verb: str, act: Callable[[Owned], object], resources: list[Owned], tell: Tell) -> None:
    """Begins one after another; those that have begun are finished, even if one of them fails."""
    with ThreadPoolExecutor(_AT_A_TIME, "seep gcloud") as threads:
        begun = []
        for each in resources:
            tell(f"{verb} {each.label}")
            begun.append(threads.submit(act, each))
        for done in begun:
            done.result()
