"""The schema of each kind of settings file: as JSON schema for editors, and as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ByteSize, TypeAdapter

from formats.settings import LENGTH_OF_TIME
from seep.config.kinds import ConfigKind

Node = Mapping[str, Any]

#: The schema by which pydantic describes a number of bytes.
_BYTES = TypeAdapter(ByteSize).json_schema()["anyOf"]
_FORMATS = {LENGTH_OF_TIME: "time", "rate": "rows per second", "path": "file"}
_TYPES = {"boolean": "true or false", "integer": "integer", "number": "number", "string": "text", "object": "mapping"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


class SettingField(NamedTuple):
    """A field of a settings file."""

    path: str
    type: str
    default: str
    meaning: str


def json_schema(kind: ConfigKind) -> dict[str, Any]:
    """Returns the JSON schema of such files, with which editors complete and check YAML."""
    schema = kind.model.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": f"seep {kind.words}"}


def rows(kind: ConfigKind) -> Iterator[SettingField]:
    """Lists all fields of such files, in the order of declaration; `<name>` stands for a name of the user's."""
    return rows_of(json_schema(kind))


def rows_of(schema: Node) -> Iterator[SettingField]:
    """Lists all fields of any model of settings."""
    return _rows(schema, schema.get("$defs", {}), "")


def table(kind: ConfigKind) -> str:
    """Returns the fields as a table in Markdown."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.path}` | {row.type} | {row.default} | {row.meaning} |" for row in rows(kind)]
    return "\n".join(lines)


def _rows(section: Node, named: Mapping[str, Node], prefix: str) -> Iterator[SettingField]:
    required = section.get("required", ())
    for name, node in section["properties"].items():
        path, inner = _section_in(node, named, prefix + name)
        if inner is None:
            default = "required" if name in required else _default(node)
            yield SettingField(path, _type(node, named), default, node.get("description", "").replace("|", "\\|"))
        else:
            yield from _rows(inner, named, f"{path}.")


def _section_in(node: Node, named: Mapping[str, Node], path: str) -> tuple[str, Node | None]:
    """Returns the section that is the type of a field, or of its values, with the path of its fields."""
    if isinstance(each := node.get("additionalProperties"), Mapping):
        return _section_in(each, named, f"{path}.<name>") if "$ref" in each else (path, None)
    target = _resolved(node, named)
    return path, target if "properties" in target else None


def _resolved(node: Node, named: Mapping[str, Node]) -> Node:
    return named[node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _type(node: Node, named: Mapping[str, Node]) -> str:
    """Returns the type of a field in words."""
    node = _resolved(node, named)
    if node.get("format") in _FORMATS:
        return _FORMATS[node["format"]]
    if "enum" in node:
        return " or ".join(f"`{each}`" for each in node["enum"])
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_alternatives(node["anyOf"], named)))
    if "properties" in node:
        return f"{{{', '.join(node['properties'])}}}"
    if node["type"] == "array":
        return f"list of {_type(node['items'], named)}"
    if isinstance(each := node.get("additionalProperties"), Mapping):
        return f"mapping of names to {_type(each, named)}"
    return _TYPES[node["type"]] + _bounds(node)


def _alternatives(nodes: list[Node], named: Mapping[str, Node]) -> Iterator[str]:
    """Yields the alternatives of a type without none: the default shows that none is allowed."""
    if all(each in nodes for each in _BYTES):
        yield "bytes"
        nodes = [each for each in nodes if each not in _BYTES]
    yield from (_type(each, named) for each in nodes if each.get("type") != "null")


def _bounds(node: Node) -> str:
    """Returns bounds, as in `number > 0, ≤ 1`."""
    said = [f"{sign} {node[word]:g}" for word, sign in _BOUNDS.items() if word in node]
    return f" {', '.join(said)}" if said else ""


def _default(node: Node) -> str:
    value = node.get("default", {} if node.get("type") == "object" else [])
    if value is None:
        return "none"
    if node.get("format") == LENGTH_OF_TIME:
        return _time(value)
    if all(each in node.get("anyOf", ()) for each in _BYTES):
        return _bytes(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "empty" if value in ({}, [], "") else str(value)


def _time(seconds: float) -> str:
    """Returns a time as written in a file.

    >>> _time(0.05), _time(5.0)
    ('50ms', '5s')
    """
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _bytes(count: int) -> str:
    """Returns bytes in the largest unit that needs no fraction.

    >>> _bytes(256 << 20), _bytes(1536), _bytes(10)
    ('256MiB', '1536B', '10B')
    """
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count and count % (1 << bits) == 0:
            return f"{count >> bits}{unit}"
    return f"{count}B"
