"""Import paths: what a setting such as `module:Class` names."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from primitives.errors import UserError


def imported(path: str, setting: str) -> Any:
    """What `module:name` names, also in the working directory; UserError that begins with `setting` if it is not there.

    >>> imported("collections:Counter", "scaling.policy")("seep")["e"]
    2
    """
    module, _, name = path.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = importlib.import_module(module)
    except Exception as reason:  # whatever the user's module raises
        raise UserError(
            f"{setting} is {path!r}: module {module!r} cannot be imported: {type(reason).__name__}: {reason}"
        ) from reason
    if not hasattr(found, name):
        raise UserError(f"{setting} is {path!r}: there is no {name!r} in {module}")
    return getattr(found, name)
