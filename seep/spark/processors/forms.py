"""Converters between Spark's Python values and those of Arrow, made once for each type.

Code for Spark has structs as rows or tuples, and instants as local times without a zone; Arrow has mappings and UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import types as spark

from primitives.errors import UserError

Form = Callable[[Any], Any]


def to_arrow(kind: spark.DataType) -> Form:
    """Returns a function that converts a Spark value to one that `pyarrow.array` accepts for this type.

    >>> to_arrow(spark.StructType().add("n", "integer").add("text", "string"))((1, "x"))
    {'n': 1, 'text': 'x'}
    """
    return _or_none(_to_arrow(kind))


def to_spark(kind: spark.DataType) -> Form:
    """Returns a function that converts an Arrow value to one for Spark's code.

    >>> to_spark(spark.StructType().add("n", "integer").add("text", "string"))({"n": 1, "text": "x"})
    Row(n=1, text='x')
    """
    return _or_none(_to_spark(kind))


def _or_none(form: Form | None) -> Form:
    return _same if form is None else lambda value: None if value is None else form(value)


def _same(value: Any) -> Any:
    return value


# -- to Arrow ----------------------------------------------------------------------------------------------------------


def _to_arrow(kind: spark.DataType) -> Form | None:
    match kind:
        case spark.StructType():
            return _struct_to_arrow(kind)
        case spark.ArrayType():
            element = to_arrow(kind.elementType)
            return lambda values: [element(value) for value in values]
        case spark.MapType():
            key, value = to_arrow(kind.keyType), to_arrow(kind.valueType)
            return lambda given: [(key(k), value(v)) for k, v in given.items()]
        case spark.TimestampType():
            return _instant
    return _plain


def _struct_to_arrow(kind: spark.StructType) -> Form:
    names, forms = kind.names, [to_arrow(field.dataType) for field in kind.fields]

    def form(value: Any) -> dict[str, Any]:
        fields = _fields(value, names)
        return {name: form(each) for name, form, each in zip(names, forms, fields, strict=True)}

    return form


def _fields(value: Any, names: list[str]) -> list[Any]:
    """Returns the fields of a row, by name if it has names; those of other tuples in order."""
    if isinstance(value, spark.Row) and hasattr(value, "__fields__"):
        value = value.asDict()
    if isinstance(value, Mapping):
        if missing := [name for name in names if name not in value]:
            raise UserError(
                f"a row has no field {missing[0]!r}; it has {', '.join(value)}, and needs {', '.join(names)}"
            )
        return [value[name] for name in names]
    if not isinstance(value, tuple | list) or len(value) != len(names):
        raise UserError(f"{value!r:.100} is not a row of the columns {', '.join(names)}; give a tuple or a Row of them")
    return list(value)


def _instant(value: Any) -> Any:
    """Converts a time to UTC; without a zone it is a local time, as everywhere in PySpark."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    """Converts a NumPy scalar, which code that works on frames often returns."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


# -- to Spark ----------------------------------------------------------------------------------------------------------


def _to_spark(kind: spark.DataType) -> Form | None:
    match kind:
        case spark.StructType():
            return _struct_to_spark(kind)
        case spark.ArrayType():
            element = to_spark(kind.elementType)
            return lambda values: [element(value) for value in values]
        case spark.MapType():
            key, value = to_spark(kind.keyType), to_spark(kind.valueType)
            return lambda pairs: {key(k): value(v) for k, v in pairs}
        case spark.TimestampType():
            return lambda instant: instant.astimezone().replace(tzinfo=None)
    return None


def _struct_to_spark(kind: spark.StructType) -> Form:
    row, forms = spark.Row(*kind.names), [to_spark(field.dataType) for field in kind.fields]
    return lambda given: row(*[form(value) for form, value in zip(forms, given.values(), strict=True)])
