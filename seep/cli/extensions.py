"""Commands of other packages for `seep`: each is a Typer app, found by an entry point of the group `seep.commands`.

In the `setup.py` of such a package: `entry_points={"seep.commands": ["orders = orders.cli:app"]}`.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points

import typer

GROUP = "seep.commands"


def add_to(app: typer.Typer) -> None:
    """Adds the commands by name. One that cannot be loaded is reported on stderr, and does not affect the others."""
    known = {group.typer_instance.info.name for group in app.registered_groups if group.typer_instance is not None}
    for each in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        found = _loaded(each)
        if isinstance(found, typer.Typer) and each.name not in known:
            known.add(each.name)
            app.add_typer(found, name=each.name)
        else:
            sys.stderr.write(f"seep {each.name}: {_refusal(each, found)}\n")


def _loaded(each: EntryPoint) -> object:
    try:
        return each.load()
    except Exception as reason:
        return reason


def _refusal(each: EntryPoint, found: object) -> str:
    package = each.dist.name if each.dist is not None else each.value
    if isinstance(found, Exception):
        return f"{each.value} of {package} cannot be loaded: {type(found).__name__}: {found}"
    if isinstance(found, typer.Typer):
        return f"there is a command of that name already; {package} has to give it another one"
    return f"{each.value} of {package} is a {type(found).__name__}; it has to be a typer.Typer"
