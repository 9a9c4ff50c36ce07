"""Reads YAML as plain values, and refuses duplicate keys (a YAML parser keeps the last one)."""

from __future__ import annotations

from typing import Any

import yaml

from primitives.errors import UserError


def parsed(text: str, name: str) -> Any:
    """Returns the values of a YAML text, None if it is empty. Raises UserError with `name` and the line of an error.

    >>> parsed("run: {epoch: 20ms, nodes: 4}", "p.yaml")
    {'run': {'epoch': '20ms', 'nodes': 4}}
    >>> parsed("nodes: 4\\nnodes: 5", "p.yaml")
    Traceback (most recent call last):
    primitives.errors.UserError: p.yaml: line 2: 'nodes' stands twice, first in line 1
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader never executes the text
    except _StandsTwice as reason:
        raise UserError(f"{name}: {_in_words(reason)}") from None
    except yaml.YAMLError as reason:
        raise UserError(f"{name} is not YAML: {_in_words(reason)}") from None


class _StandsTwice(yaml.MarkedYAMLError):  # type: ignore[misc]
    pass


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Checks the mapping before `<<` is resolved, which may repeat keys on purpose."""
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
    """Returns YAML's message of several lines in one line."""
    mark = getattr(reason, "problem_mark", None)
    problem = getattr(reason, "problem", None) or " ".join(str(reason).split())
    return f"line {mark.line + 1}: {problem}" if mark else problem
