"""Arrow's columns as Spark names them."""

import pyarrow as pa

from chainlake.arrow_ddl import TIME, ddl_of


def test_columns_have_the_names_and_types_that_spark_reads() -> None:
    whole = {"height": pa.int64(), "index": pa.int32(), "hash": pa.binary(), "why": pa.string(), "at": TIME, "live": pa.bool_()}
    parts = pa.list_(pa.struct({"many": pa.list_(pa.int32()), "at": TIME}))
    assert ddl_of(pa.schema({**whole, "parts": parts})) == (
        "height bigint, index int, hash binary, why string, at timestamp, live boolean,"
        " parts array<struct<many: array<int>, at: timestamp>>"
    )
