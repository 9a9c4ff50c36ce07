"""Reads YAML as plain values, and refuses a key that stands twice (a YAML parser lets the last one win)."""

from __future__ import annotations

from typing import Any

import yaml

from primitives.errors import UserError


def parsed(text: str, name: str) -> Any:
    """The values of a YAML text, None if it is empty; UserError with `name` and the line where it cannot be read.

    >>> parsed("run: {epoch: 20ms, nodes: 4}", "p.yaml")
    {'run': {'epoch': '20ms', 'nodes': 4}}
    >>> parsed("nodes: 4\\nnodes: 5", "p.yaml")
    Traceback (most recent call last):
    primitives.errors.UserError: p.yaml: line 2: 'nodes' stands twice, first in line 1
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader: nothing in the text is ever run
    except _StandsTwice as reason:
        raise UserError(f"{name}: {_in_words(reason)}") from None
    except yaml.YAMLError as reason:
        raise UserError(f"{name} is not YAML: {_in_words(reason)}") from None


class _StandsTwice(yaml.MarkedYAMLError):  # type: ignore[misc]
    pass


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Looks while the mapping is as it was written: later, `<<` has brought in keys that may stand twice."""
        node = super().compose_mapping_node(anchor)
        found: dict[tuple[str, str], yaml.Mark] = {}
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in found:
                problem = f"{key.value!r} stands twice, first in line {found[name].line + 1}"
                raise _StandsTwice(problem=problem, problem_mark=key.start_mark)
            found[name] = key.start_mark
        return node


def _in_words(reason: yaml.YAMLError) -> str:
    """In one line, where YAML takes several."""
    mark = getattr(reason, "problem_mark", None)
    problem = getattr(reason, "problem", None) or " ".join(str(reason).split())
    return f"line {mark.line + 1}: {problem}" if mark else problem
