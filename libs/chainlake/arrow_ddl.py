"""Columns that Python hands to Spark: declared once, as Arrow; Spark wants them as text."""

from collections.abc import Iterable

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
_NAMES = {pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean", TIME: "timestamp"}


def ddl_of(schema: Iterable[pa.Field], between: str = " ") -> str:
    """The columns of an Arrow schema as Spark names them."""
    return ", ".join(f"{one.name}{between}{_spark_type(one.type)}" for one in schema)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{ddl_of(kind, ': ')}>"
    return _NAMES.get(kind, str(kind))
