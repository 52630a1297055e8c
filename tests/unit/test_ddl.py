"""The files in tables/ are read as they are meant, wrong ones are refused with the reason, and a drifted table is noticed."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import types as T

from chainlake.errors import BadInput
from chainlake.lake.ddl import KINDS, Column, Table, load, parse
from chainlake.lake.drift import Physical, drift, properties, simple
from chainlake.lake.names import LAYERS
from chainlake.paths import tables_dir

WHOLE = """-- Streams as they are now,
-- after each block.
-- kind: state
-- key: chain, stream_id
-- stages: silver.a, silver.b
-- retention: 90 days
CREATE TABLE silver.things (
  stream_id BINARY NOT NULL COMMENT 'Who (20 bytes), or 32, of old ones: see docs',
  nodes ARRAY<STRUCT<address: BINARY, tags: MAP<STRING, ARRAY<INT>>>> COMMENT 'Nested <types>, with commas',
  amount DECIMAL(38, 0) NOT NULL COMMENT 'In lovelace',
  options   MAP<STRING,
                STRING> COMMENT 'Over two lines',
  CONSTRAINT id_length CHECK (length(stream_id) IN (20, 32))
)
CLUSTER BY (_chain, stream_id)
TBLPROPERTIES ('delta.checkpointInterval' = '10', 'note' = 'a, b (c)');
"""


HEADER = "-- kind: event\n-- key: chain, height\n-- stages: raw.x"


def things(*columns: str, header: str = HEADER, tail: str = "", retention: str = "7 days") -> str:
    lines = ",\n  ".join(columns or ("a STRING COMMENT 'x'",))
    return f"-- Things.\n{header}\n-- retention: {retention}\nCREATE TABLE raw.things (\n  {lines}\n){tail};\n"


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return load(tables_dir())


def test_a_whole_declaration_is_read() -> None:
    table = parse(WHOLE, "here")
    assert (table.name, table.kind, table.is_control) == ("silver.things", "state", False)
    assert table.description == "Streams as they are now, after each block."
    assert table.key == ("chain", "stream_id") and table.state_key == ("stream_id",)
    assert table.stages == ("silver.a", "silver.b")
    assert table.retention == timedelta(days=90)
    assert table.columns == (
        Column("stream_id", "BINARY", False, "Who (20 bytes), or 32, of old ones: see docs"),
        Column("nodes", "ARRAY<STRUCT<address: BINARY, tags: MAP<STRING, ARRAY<INT>>>>", True, "Nested <types>, with commas"),
        Column("amount", "DECIMAL(38, 0)", False, "In lovelace"),
        Column("options", "MAP<STRING, STRING>", True, "Over two lines"),
    )
    assert table.checks == (("id_length", "length(stream_id) IN (20, 32)"),)
    assert table.cluster_by == ("_chain", "stream_id")
    assert table.properties == (("delta.checkpointInterval", "10"), ("note", "a, b (c)"))


def test_the_kernels_columns_come_first() -> None:
    assert [c.name for c in parse(WHOLE, "here").stored][:4] == ["_chain", "_height", "_commit", "_deleted"]
    assert [c.name for c in parse(things(), "here").stored] == ["_chain", "_height", "_commit", "a"]
    control = things(header="-- kind: control\n-- key: a").replace("raw.things", "control.things")
    assert [c.name for c in parse(control, "here").stored] == ["a"]


def test_a_declaration_without_extras_has_none() -> None:
    table = parse(things(), "here")
    assert (table.checks, table.cluster_by, table.properties) == ((), (), ())


def test_a_column_is_written_as_sql_with_its_comment_quoted() -> None:
    assert Column("a", "INT", False, "it's").sql() == r"`a` INT NOT NULL COMMENT 'it\'s'"
    assert Column("a", "INT", True, "x").sql() == "`a` INT COMMENT 'x'"


@pytest.mark.parametrize(
    ("condition", "after"),
    [
        pytest.param("length(a) IN (1, 2)", "c INT COMMENT 'y'", id="plain"),
        pytest.param("if(b > 0, a < 'x', true)", "c INT COMMENT 'y'", id="balanced"),
        pytest.param("length(a) > 0", "c INT COMMENT 'y'", id="greater"),
        pytest.param("b <= 10 AND b <> 4", "c INT COMMENT 'y'", id="less"),
        pytest.param("b >= 0", "CONSTRAINT second CHECK (b < 9)", id="two"),
    ],
)
def test_a_check_may_compare_and_be_followed_by_more(condition: str, after: str) -> None:
    table = parse(things("a STRING COMMENT 'x'", "b INT COMMENT 'z'", f"CONSTRAINT first CHECK ({condition})", after), "here")
    assert table.checks[0] == ("first", condition)
    assert len(table.columns) + len(table.checks) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            things(header="-- key: chain\n-- stages: raw.x"),
            "kind is ''; write '-- kind: ' and one of event, state, index, control",
        ),
        (things(header="-- kind: odd\n-- key: chain"), "kind is 'odd'; write"),
        (things(header="-- kind: event\n-- stages: raw.x"), "no key; write '-- key: '"),
        (things(header="-- kind: event\n-- key: chain"), "no stages; write '-- stages: ' and the stages that write raw.things"),
        (
            things(header="-- kind: event\n-- key: chain, b\n-- stages: raw.x"),
            "'b' in key or CLUSTER BY is no column of raw.things",
        ),
        *(
            (things(retention=text), f"retention is {text!r}; write '-- retention: 30 days'")
            for text in ("", "week", "0 days", "-1 days", "2.5 days")
        ),
        (things(tail="\nCLUSTER BY (nope)"), "'nope' in key or CLUSTER BY is no column of raw.things"),
        (things("a STRING"), "column 'a STRING' must read: name TYPE [NOT NULL] COMMENT 'text'"),
        (things("a STRING COMMENT ''"), "must read: name TYPE [NOT NULL] COMMENT 'text'"),
        (things("a"), "column 'a' must read"),
        (things("a STRING COMMENT 'it''s'"), "must read: name TYPE [NOT NULL] COMMENT 'text'"),
        (
            things("a INT COMMENT 'x'", "CONSTRAINT c (a > 0)"),
            "constraint 'CONSTRAINT c (a > 0)' must read: CONSTRAINT name CHECK",
        ),
        (things("a ARRAY<INT COMMENT 'x'", "b INT COMMENT 'y'"), "column \"a ARRAY<INT COMMENT 'x'"),
        (things("a INT COMMENT 'x'", "b INT COMMENT 'y'", "a STRING COMMENT 'z'"), "column 'a' is declared twice in raw.things"),
        (things("a INT COMMENT 'x'", "A INT COMMENT 'y'"), "column 'a' is declared twice"),
        (
            things(tail="\nPARTITIONED BY (a)"),
            "'PARTITIONED BY (a)' after the columns of raw.things: only CLUSTER BY (…) and TBLPROPERTIES (…), once each",
        ),
        (things(tail="\nCLUSTER BY (a)\nPARTITIONED BY (a)"), "'PARTITIONED BY (a)' after the columns"),
        (things(tail=" USING DELTA"), "'USING DELTA' after the columns"),
        (things(tail=";\nDROP TABLE raw.a"), "';\\nDROP TABLE raw.a' after the columns"),
        (things(tail="\nCLUSTER BY a"), "'CLUSTER BY a' after the columns"),
        (things(tail="\nCLUSTER BY (a"), "'CLUSTER BY (a' after the columns"),
        (things(tail="\nCLUSTER BY (a) CLUSTER BY (a)"), "'CLUSTER BY (a)' after the columns"),
        (things(tail="\nTBLPROPERTIES (a = 'b')"), "property \"a = 'b'\" must read: 'name' = 'value'"),
        (things(tail="\nTBLPROPERTIES ('a' = 'b' 'c' = 'd')"), "must read: 'name' = 'value'"),
        (
            things(header="-- kind: event\n-- key: chain\n-- stages: raw.x\n-- while_degraded: b = 1"),
            "'b' in while_degraded is no",
        ),
        (things(header="-- kind: event\n-- key: chain\n-- stages: raw.x\n-- while_degraded: a"), "must read: column = value"),
        (things("_chain STRING COMMENT 'x'"), "column '_chain' is the kernel's; choose another name"),
        (things("chain STRING COMMENT 'x'"), "column 'chain' is the kernel's"),
        (things("height BIGINT COMMENT 'x'"), "column 'height' is the kernel's"),
        ("SELECT 1", "expected 'CREATE TABLE layer.name (' and found 'SELECT 1'"),
        ("", "expected 'CREATE TABLE layer.name (' and found ''"),
        ("CREATE TABLE raw.a (b INT COMMENT 'x'", "the column list of raw.a is not closed"),
        ("CREATE TABLE raw.a (b INT COMMENT 'x)", "the column list of raw.a is not closed"),
        ("CREATE TABLE lead.a (b INT COMMENT 'x')", "'lead.a' is not a table name: use layer.name with a layer of raw, bronze"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        parse(text, "here.sql")


@pytest.mark.parametrize(
    "tail",
    [
        "CLUSTER BY(a)TBLPROPERTIES('x'='y')",
        "\ncluster  by\n(a)\ntblproperties ( 'x' = 'y' )",
        " TBLPROPERTIES ('x'='y') CLUSTER BY (a)",
    ],
)
def test_clauses_may_be_spaced_and_ordered_freely(tail: str) -> None:
    table = parse(things(tail=tail), "here")
    assert (table.cluster_by, table.properties) == (("a",), (("x", "y"),))


def test_errors_name_the_file() -> None:
    with pytest.raises(BadInput, match=r"^here\.sql: "):
        parse("SELECT 1", "here.sql")


def test_a_state_table_may_have_a_height_of_its_own() -> None:
    header = "-- kind: state\n-- key: chain, height\n-- stages: raw.x"
    assert [c.name for c in parse(things("height BIGINT COMMENT 'x'", header=header), "here").columns] == ["height"]


def test_file_and_table_have_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "raw" / "other.sql"
    path.parent.mkdir()
    path.write_text(things(), encoding="utf-8")
    with pytest.raises(BadInput, match=r"other\.sql declares raw\.things: file and table must have the same name"):
        load(tmp_path)


def test_migrations_are_no_tables(tmp_path: Path) -> None:
    for folder, name, text in (("raw", "things.sql", things()), ("migrations", "0001_x.sql", "ALTER TABLE store.raw_things …")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text, encoding="utf-8")
    assert list(load(tmp_path)) == ["raw.things"]


# The real files


def test_every_file_is_a_table(tables: dict[str, Table]) -> None:
    files = [p for p in tables_dir().glob("*/*.sql") if p.parent.name != "migrations"]
    assert len(tables) == len(files) >= 10
    assert {name.split(".")[0] for name in tables} <= {*LAYERS, "control"}


def test_every_table_and_column_is_explained(tables: dict[str, Table]) -> None:
    for table in tables.values():
        assert len(table.description) > 20, table.name
        for column in table.columns:
            assert column.comment.strip() and "'" not in column.comment, f"{table.name}.{column.name}"


def test_names_are_plain_unique_and_not_the_kernels(tables: dict[str, Table]) -> None:
    for table in tables.values():
        names = [column.name for column in table.stored]
        assert len(names) == len(set(names)), table.name
        for column in table.columns:
            assert re.fullmatch(r"[a-z][a-z0-9_]*", column.name), f"{table.name}.{column.name}"


def test_keys_identify_rows_of_a_chain(tables: dict[str, Table]) -> None:
    for table in tables.values():
        assert len(table.key) == len(set(table.key)), table.name
        if not table.is_control:
            assert table.key[0] == "chain", table.name
            declared = {column.name: column for column in table.columns}
            for name in table.key[1:]:
                nullable = declared[name].nullable if name in declared else False
                assert not nullable, f"{table.name}: key column {name} may be NULL"


def test_state_tables_have_a_key_beside_the_chain(tables: dict[str, Table]) -> None:
    for table in tables.values():
        if table.kind == "state":
            stored = {column.name for column in table.columns}
            assert table.state_key and set(table.state_key) <= stored, table.name
        assert table.kind in KINDS


def test_checks_and_stages_are_sane(tables: dict[str, Table]) -> None:
    for table in tables.values():
        for name, condition in table.checks:
            assert re.fullmatch(r"\w+", name) and "CONSTRAINT" not in condition.upper(), f"{table.name} {name}"
            assert condition.count("(") == condition.count(")"), f"{table.name} {name}: {condition}"
        for stage in table.stages:
            assert re.fullmatch(rf"({'|'.join(LAYERS)})\.[a-z_]+", stage), f"{table.name} {stage}"


# Types and drift

SPARK_TYPES: list[tuple[str, T.DataType]] = [
    ("STRING", T.StringType()),
    ("BINARY", T.BinaryType()),
    ("BIGINT", T.LongType()),
    ("LONG", T.LongType()),
    ("INT", T.IntegerType()),
    ("INTEGER", T.IntegerType()),
    ("SMALLINT", T.ShortType()),
    ("TINYINT", T.ByteType()),
    ("BOOLEAN", T.BooleanType()),
    ("DOUBLE", T.DoubleType()),
    ("FLOAT", T.FloatType()),
    ("DATE", T.DateType()),
    ("TIMESTAMP", T.TimestampType()),
    ("DECIMAL(38, 0)", T.DecimalType(38, 0)),
    ("DECIMAL( 10,2 )", T.DecimalType(10, 2)),
    ("ARRAY<BINARY>", T.ArrayType(T.BinaryType())),
    ("ARRAY< ARRAY<INT> >", T.ArrayType(T.ArrayType(T.IntegerType()))),
    ("MAP<STRING, BIGINT>", T.MapType(T.StringType(), T.LongType())),
    ("MAP<STRING,MAP<STRING, LONG>>", T.MapType(T.StringType(), T.MapType(T.StringType(), T.LongType()))),
    ("STRUCT<a: INT, b: STRING>", T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.StringType())])),
    ("STRUCT<a INT, b STRING>", T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.StringType())])),
    (
        "ARRAY<STRUCT<type: STRING, amount: DECIMAL(38, 0), attributes: ARRAY<STRUCT<key: STRING, value: BINARY>>>>",
        T.ArrayType(
            T.StructType(
                [
                    T.StructField("type", T.StringType()),
                    T.StructField("amount", T.DecimalType(38, 0)),
                    T.StructField(
                        "attributes",
                        T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])),
                    ),
                ]
            )
        ),
    ),
]


@pytest.mark.parametrize(("declared", "spark"), SPARK_TYPES, ids=[declared for declared, _ in SPARK_TYPES])
def test_a_declared_type_is_known_as_spark_prints_it(declared: str, spark: T.DataType) -> None:
    assert simple(declared) == spark.simpleString()


def test_every_type_in_use_is_one_that_spark_prints(tables: dict[str, Table]) -> None:
    """A declared type that `simple` does not bring to Spark's spelling would look like drift for ever."""
    words = {"string", "binary", "bigint", "int", "smallint", "tinyint", "boolean", "double", "float", "date", "timestamp"}
    for table in tables.values():
        for column in table.stored:
            printed = simple(column.type)
            assert " " not in printed, f"{table.name}.{column.name} {printed}"
            plain = re.sub(r"(?<=[<,])\w+:", "", re.sub(r"decimal\(\d+,\d+\)", "string", printed))
            assert set(re.findall(r"\w+", plain)) <= words | {"array", "map", "struct"}, f"{table.name}.{column.name} {printed}"


def found(table: Table) -> Physical:
    """The table as it is when it was made from its declaration."""
    columns = {column.name: (simple(column.type), column.nullable) for column in table.stored}
    checks = {f"delta.constraints.{name}": rule for name, rule in table.checks}
    return Physical(columns, {**properties(table), **checks}, table.cluster_by)


def test_a_table_as_declared_has_no_drift(tables: dict[str, Table]) -> None:
    for table in [*tables.values(), parse(WHOLE, "here")]:
        assert drift(found(table), table) == ""


def test_drift_names_missing_unknown_and_changed_columns() -> None:
    a, b, c = (f"{name} INT COMMENT 'x'" for name in "abc")
    one, two, three = (parse(things(*columns), "here") for columns in ((a,), (a, b), (a, b, c)))
    text, odd = parse(things("a STRING COMMENT 'x'"), "here"), parse(things("a STRING COMMENT 'x'", c), "here")
    assert drift(found(one), three) == "missing b, c"
    assert drift(found(two), one) == "unknown b"
    assert drift(found(text), one) == "a is string, declared INT"
    assert drift(found(odd), two) == "missing b; unknown c; a is string, declared INT"


def test_drift_names_columns_that_may_be_null_and_should_not_or_the_other_way() -> None:
    may, must_not = (parse(things(f"a INT{text} COMMENT 'x'"), "here") for text in ("", " NOT NULL"))
    assert drift(found(may), must_not) == "a may be NULL, declared with NOT NULL"
    assert drift(found(must_not), may) == "a must not be NULL, declared without NOT NULL"


def test_drift_names_constraints() -> None:
    whole = parse(WHOLE, "here")
    bare, other = replace(whole, checks=()), replace(whole, checks=(("ID_length", "length(stream_id) > 0"),))
    assert drift(found(bare), whole) == "constraint id_length is missing"
    assert drift(found(whole), bare) == "unknown constraint id_length"
    assert drift(found(whole), other) == (
        "constraint id_length is CHECK (length(stream_id) IN (20, 32)), declared CHECK (length(stream_id) > 0)"
    )
    spaced = replace(whole, checks=(("id_length", "length( `stream_id` )  IN (20,32)"),))
    assert drift(found(spaced), whole) == "", "as a workspace may write it"
    assert drift(found(bare), whole, checks=False) == "", "bases have none"


def test_drift_names_clustering_and_properties() -> None:
    whole = parse(WHOLE, "here")
    assert drift(replace(found(whole), cluster_by=("_chain",)), whole) == "clustered by (_chain), declared (_chain, stream_id)"
    kept = drift(found(whole), replace(whole, retention=timedelta(days=7)))
    assert kept == "; ".join(
        f"property delta.{name} is interval 90 days, declared interval 7 days"
        for name in ("logRetentionDuration", "deletedFileRetentionDuration")
    )
    gone = {name: value for name, value in found(whole).properties.items() if name != "note"}
    assert drift(replace(found(whole), properties=gone), whole) == "property note is not set, declared a, b (c)"
    more = {**found(whole).properties, "delta.feature.clustering": "supported"}
    assert drift(replace(found(whole), properties=more), whole) == "", "Delta adds some of its own"
