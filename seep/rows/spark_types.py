"""Converts types between Arrow and Spark; raises an error that names a column whose type has no counterpart.

Text, numbers, decimals, bytes, dates, times, durations, nulls, arrays, maps and structs are supported. A timestamp of
Spark is an instant, so it becomes a timestamp in UTC, whatever the session's zone; one without a zone has no zone here.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as arrow
from pyspark.sql import types as spark

from primitives.errors import UserError

_FROM_SPARK: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.CharType: pa.string(),
    spark.VarcharType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimeType: pa.time64("ns"),
    spark.TimestampType: pa.timestamp("us", "UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.DayTimeIntervalType: pa.duration("us"),
    spark.NullType: pa.null(),
}

_TO_SPARK: dict[pa.DataType, spark.DataType] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.time64("us"): spark.TimeType(),
    pa.time64("ns"): spark.TimeType(),
    pa.timestamp("us"): spark.TimestampNTZType(),
    pa.duration("us"): spark.DayTimeIntervalType(),
    pa.null(): spark.NullType(),
}

#: Advice for types without counterpart, by Spark's name of the type.
_INSTEAD_OF_SPARK = {
    "interval": "cast it to a day-time interval, or give months and microseconds as numbers",
    "variant": "take what is needed out of it with variant_get(…), or make text of it with to_json(…)",
    "geometry": "make bytes of it with ST_AsBinary(…)",
    "geography": "make bytes of it with ST_AsBinary(…)",
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Converts the columns of a DataFrame to Arrow; all may be null. Raises UserError for a type that is not supported.

    >>> arrow_schema(spark.StructType([spark.StructField("n", spark.LongType(), False)]))
    n: int64
    """
    return pa.schema([pa.field(field.name, _to_arrow(field.dataType, field.name)) for field in schema.fields])


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """Converts columns to those of a DataFrame. Raises UserError for a type that is not supported.

    >>> spark_schema(pa.schema([("at", pa.timestamp("us", "UTC"))])).simpleString()
    'struct<at:timestamp>'
    """
    return spark.StructType([_spark_field(field, field.name) for field in schema])


def spark_form(schema: pa.Schema) -> pa.Schema:
    """Returns the Arrow columns as Spark itself would send them, to cast batches for it: instants in UTC, plain text.

    >>> spark_form(pa.schema([("at", pa.timestamp("us", "Europe/Berlin")), ("text", pa.large_string())]))
    at: timestamp[us, tz=UTC]
    text: string
    """
    return arrow_schema(spark_schema(schema))


# -- from Spark --------------------------------------------------------------------------------------------------------


def _to_arrow(kind: spark.DataType, where: str) -> pa.DataType:
    match kind:
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case spark.ArrayType():
            return pa.list_(pa.field("element", _to_arrow(kind.elementType, f"{where}[]")))
        case spark.MapType():
            key, value = _to_arrow(kind.keyType, f"{where}.key"), _to_arrow(kind.valueType, f"{where}.value")
            return pa.map_(key, value)
        case spark.StructType():
            return pa.struct([pa.field(f.name, _to_arrow(f.dataType, f"{where}.{f.name}")) for f in kind.fields])
    if type(kind) not in _FROM_SPARK:
        raise UserError(
            f"column {where!r} is of Spark's type {_name(kind)}, which seep has not: {_advice_for_spark(kind)}"
        )
    return _FROM_SPARK[type(kind)]


def _name(kind: spark.DataType) -> str:
    return type(kind).__name__ if isinstance(kind, spark.UserDefinedType) else kind.simpleString()


def _advice_for_spark(kind: spark.DataType) -> str:
    if isinstance(kind, spark.UserDefinedType):
        plain = type(kind).sqlType().simpleString()
        return f"give its content, {plain}, as columns of their own"
    if isinstance(kind, spark.YearMonthIntervalType):
        return "give the months as a number"
    return _INSTEAD_OF_SPARK.get(_name(kind).partition("(")[0], "leave it out, or cast it in the query before")


# -- to Spark ----------------------------------------------------------------------------------------------------------


def _spark_field(field: pa.Field, where: str) -> spark.StructField:
    return spark.StructField(field.name, _to_spark(field.type, where), field.nullable)


def _to_spark(kind: pa.DataType, where: str) -> spark.DataType:
    if kind in _TO_SPARK:
        return _TO_SPARK[kind]
    if arrow.is_timestamp(kind) and kind.unit == "us":
        return spark.TimestampType()
    if arrow.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return spark.DecimalType(kind.precision, kind.scale)
    nested = _nested(kind, where)
    if nested is None:
        raise UserError(f"column {where!r} is of the type {kind}, which Spark has not: {_advice_for_arrow(kind)}")
    return nested


def _nested(kind: pa.DataType, where: str) -> spark.DataType | None:
    if arrow.is_list(kind) or arrow.is_large_list(kind) or arrow.is_fixed_size_list(kind):
        return spark.ArrayType(_to_spark(kind.value_type, f"{where}[]"), kind.value_field.nullable)
    if arrow.is_map(kind):
        key, item = _to_spark(kind.key_type, f"{where}.key"), _to_spark(kind.item_type, f"{where}.value")
        return spark.MapType(key, item, kind.item_field.nullable)
    if arrow.is_struct(kind):
        return spark.StructType([_spark_field(field, f"{where}.{field.name}") for field in kind])
    return None


def _advice_for_arrow(kind: Any) -> str:
    if arrow.is_unsigned_integer(kind):
        return f"cast it to int{min(2 * kind.bit_width, 64)} in a map(…) before"
    if arrow.is_timestamp(kind) or arrow.is_duration(kind):
        return "Spark counts microseconds; cast it to unit 'us' in a map(…) before"
    if arrow.is_decimal(kind):
        return "Spark's decimals have at most 38 digits; cast it to such a decimal128 in a map(…) before"
    return "leave it out, or cast it in a map(…) before"
