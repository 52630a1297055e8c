"""Views, migrations and the page of tables, as far as text goes. SQLite runs the text of the views against the naive model."""

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings

from chainlake.errors import BadInput
from chainlake.lake.catalog import usable_bases
from chainlake.lake.ddl import Table, load, parse
from chainlake.lake.migrations import Migration, _apply, find
from chainlake.lake.names import Namespace
from chainlake.lake.tables_page import page, queryable
from chainlake.lake.views import MOST_CHAINS, SMALL_BASE, VISIBLE, reader_view, shown_columns, visible_view
from chainlake.lake.visibility import ADVANCE, COMPACT, ROLLBACK, Commit, LedgerView
from chainlake.paths import project_root, tables_dir
from tests.unit.ledger_model import CHAIN, Block, Operation, Step, World, commit, commits, operations, replay

STATE = parse(
    """-- What each key is now; it's a test.
-- kind: state
-- key: chain, k
-- stages: silver.test
-- retention: 30 days
CREATE TABLE silver.things (k STRING NOT NULL COMMENT 'Key', value STRING NOT NULL COMMENT 'Its value');""",
    "state",
)
EVENT = parse(
    """-- What happened in each block.
-- kind: event
-- key: chain, height
-- stages: silver.test, gold.test
-- retention: 30 days
CREATE TABLE silver.happened (value STRING NOT NULL COMMENT 'What');""",
    "event",
)


SMALL, LARGE = {"silver_things_base": SMALL_BASE}, {"silver_things_base": SMALL_BASE + 1}


def bases(heights: dict[str, int], **more: Any) -> dict[str, Commit]:
    return {chain: commit(COMPACT, height, height, 9, **more) for chain, height in heights.items()}


ALL = [*(table for table in load(tables_dir()).values() if not table.is_control), STATE, EVENT]
VIEWS = [
    *(pytest.param(reader_view(Namespace(), table), id=table.name) for table in ALL),
    pytest.param(reader_view(Namespace(), STATE, bases({"one": 7}, rows=SMALL)), id="compacted, small"),
    pytest.param(reader_view(Namespace(), STATE, bases({"one": 7}, rows=LARGE)), id="compacted, large"),
    pytest.param(reader_view(Namespace(), STATE, bases({f"c{n}": 7 for n in range(MOST_CHAINS + 1)})), id="compacted, many"),
    pytest.param(visible_view(Namespace()), id="control.visible"),
]


# What every view must be like


@pytest.mark.parametrize("text", VIEWS)
def test_the_ledger_comes_before_the_data_in_every_join(text: str) -> None:
    """Spark fixes the snapshot of a table when it meets it: the ledger's must not be newer than the data's."""
    places = [match.start() for match in re.finditer(r"`store`\.", text)]
    first = re.search(r"`control`\.`(visible|ledger)`", text)
    assert first is not None
    assert all(first.start() < place for place in places)


@pytest.mark.parametrize("text", VIEWS)
def test_no_view_has_a_correlated_subquery(text: str) -> None:
    body = text.partition("\nAS ")[2]
    assert not re.search(r"\b(EXISTS|SCALAR|LATERAL)\b|[=<>]\s*\(\s*SELECT|\bIN\s*\(\s*SELECT", body, re.IGNORECASE)
    outputs = re.findall(r"SELECT (.*?)\s+FROM", body, re.DOTALL)
    assert outputs and not any("SELECT" in output for output in outputs)


@pytest.mark.parametrize("table", ALL, ids=[table.name for table in ALL])
@pytest.mark.parametrize("heights", [{}, {"one": 7}])
def test_a_view_shows_its_declared_columns_and_hides_the_kernels(table: Table, heights: dict[str, int]) -> None:
    text = reader_view(Namespace(), table, bases(heights))
    declared = re.findall(r"`(\w+)` COMMENT", text.partition("\nAS ")[0])
    own = [*(column.name for column in table.columns), *table.hex_columns]
    assert declared == list(shown_columns(table)) == (["chain", *own] if table.kind == "state" else ["chain", "height", *own])
    assert not [name for name in declared if name.startswith("_")]


@pytest.mark.parametrize("text", VIEWS)
def test_every_view_and_every_column_of_it_is_explained(text: str) -> None:
    head = text.partition("\nAS ")[0]
    columns, _, description = head.partition(")\nCOMMENT ")
    assert len(description) > 20
    explained = re.findall(r"`(\w+)` COMMENT '(.+?)'(?=, `|$)", columns.partition(" (")[2])
    assert len(explained) == columns.count("` COMMENT '") > 0


def test_the_view_of_the_ledger_has_the_columns_that_are_documented() -> None:
    head, _, body = visible_view(Namespace()).partition("\nAS ")
    plain = body.removeprefix("SELECT ").partition("\nFROM")[0].replace("least(height, coalesce(floor, height)) AS ", "")
    selected = [name.strip() for name in plain.split(",")]
    declared = [column.name for column in VISIBLE.columns]
    assert re.findall(r"`(\w+)` COMMENT", head) == declared == selected


def test_identifiers_are_shown_in_hex_too_and_contents_are_not() -> None:
    table = load(tables_dir())["bronze.evm_logs"]
    named = ("block_hash", "transaction_hash", "address", *(f"topic{number}" for number in range(4)))
    assert table.hex_columns == {f"{name}_hex": name for name in named}, "not the data of a log"
    text = reader_view(Namespace(), table)
    assert "concat('0x', lower(hex(t.`address`))) AS `address_hex`" in text
    assert "`address_hex` COMMENT 'address as 0x and hex digits'" in text


def test_a_view_asks_only_for_commits_of_the_stages_that_write_it() -> None:
    assert "WHERE stage IN ('silver.test', 'gold.test')" in reader_view(Namespace(), EVENT)


def test_quotes_in_a_description_cannot_end_the_text() -> None:
    assert r"COMMENT 'What each key is now; it\'s a test.'" in reader_view(Namespace(), STATE)


def test_names_are_of_the_namespace() -> None:
    text = reader_view(Namespace("main", "dev_"), STATE, bases({"one": 3}))
    assert text.startswith("CREATE OR REPLACE VIEW `main`.`dev_silver`.`things` ")
    for name in (
        "`main`.`dev_store`.`silver_things`",
        "`main`.`dev_store`.`silver_things_base`",
        "`main`.`dev_control`.`ledger`",
    ):
        assert name in text
    assert len(re.findall(r"`main`\.`dev_\w+`\.", text)) == len(re.findall(r"`(?:dev_)?(?:store|control|silver)`\.", text))


# The views against the model

ONE: list[Operation] = [(ADVANCE, 4), (COMPACT, 1), (ADVANCE, 4), (ROLLBACK, 3), (ADVANCE, 2), (COMPACT, 2), (ADVANCE, 0)]
TWO: list[Operation] = [(ADVANCE, 3), (ROLLBACK, 2), (ADVANCE, 4)]


@settings(max_examples=40)
@given(operations(), operations())
@example(ONE, TWO)
@example([(ADVANCE, 4), (COMPACT, 0), (ROLLBACK, 3), (ADVANCE, 3)], ONE)
def test_the_views_show_what_a_store_really_cut_would_hold(one: list[Operation], two: list[Operation]) -> None:
    steps = {"one": replay(0, one), "two": replay(6, two)}
    ledger = LedgerView(row for chain in steps for row in _ledger_rows(chain, steps[chain]))
    expected = {(chain, key, value) for chain in steps for key, value in _state(_last(steps[chain])).items()}
    happened = {(chain, b.height, _value(b)) for chain in steps for b in _last(steps[chain]).blocks}
    with Database(steps) as database:
        assert database.rows(reader_view(Namespace(), EVENT)) == sorted(happened)
        assert database.rows(reader_view(Namespace(), STATE)) == sorted(expected)
        found = usable_bases(STATE, ledger)
        for rows in (SMALL, LARGE):
            view = reader_view(Namespace(), STATE, {chain: replace(base, rows=rows) for chain, base in found.items()})
            assert database.rows(view) == sorted(expected)
        with pytest.MonkeyPatch.context() as few:
            few.setattr("chainlake.lake.views.MOST_CHAINS", 0)
            assert database.rows(reader_view(Namespace(), STATE, found)) == sorted(expected)


def test_a_chain_that_is_newer_than_the_last_compaction_is_not_hidden() -> None:
    steps = {"one": replay(0, [(ADVANCE, 4), (ADVANCE, 4), (COMPACT, 0)])}
    ledger = LedgerView(_ledger_rows("one", steps["one"]))
    found = usable_bases(STATE, ledger)
    views = [reader_view(Namespace(), STATE, {CHAIN: replace(found[CHAIN], rows=rows)}) for rows in (SMALL, LARGE)]
    steps["two"] = replay(0, [(ADVANCE, 4)])
    with Database(steps) as database:
        for view in views:
            assert {row[0] for row in database.rows(view)} == {"one", "two"}


@pytest.mark.parametrize("most_chains", [MOST_CHAINS, 0], ids=["few chains", "very many"])
@pytest.mark.parametrize("rows", [SMALL, LARGE], ids=["small", "large"])
def test_a_view_whose_base_a_rollback_went_below_fails_where_it_would_show_rows_that_are_gone(
    rows: dict[str, int], most_chains: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query may have found the view before, and the ledger after."""
    monkeypatch.setattr("chainlake.lake.views.MOST_CHAINS", most_chains)
    before = replay(0, [(ADVANCE, 4), (ADVANCE, 4), (COMPACT, 2)])
    found = usable_bases(STATE, LedgerView(_ledger_rows("one", before)))
    view = reader_view(Namespace(), STATE, {chain: replace(base, rows=rows) for chain, base in found.items()})
    after = replay(0, [(ADVANCE, 4), (ADVANCE, 4), (COMPACT, 2), (ROLLBACK, 3)])
    fine = replay(0, [(ADVANCE, 4), (ADVANCE, 4), (COMPACT, 2), (ROLLBACK, 2), (ADVANCE, 1)])
    assert after[-1].commit.height < found["one"].height == fine[-2].commit.height
    other = [Commit(**{**vars(step.commit), "stage": "bronze.other"}) for step in after]
    with Database({"one": after}) as database, pytest.raises(sqlite3.OperationalError):
        database.rows(view)
    with Database({"one": fine}, other) as database:
        assert database.rows(view) == sorted(("one", key, value) for key, value in _state(_last(fine)).items())


def _raise(message: str) -> None:
    raise ValueError(message)


class MaxBy:
    """Spark's max_by for SQLite."""

    def __init__(self) -> None:
        self.best: tuple[Any, Any] | None = None

    def step(self, value: Any, order: Any) -> None:
        if self.best is None or order > self.best[1]:
            self.best = (value, order)

    def finalize(self) -> int | None:
        return self.best[0] if self.best else None


class Database:
    """A lake of two tables in SQLite, with every row that was ever written, visible or not."""

    def __init__(self, steps: dict[str, list[Step]], others: Sequence[Commit] = ()) -> None:
        self._steps = steps
        self._others = others

    def __enter__(self) -> "Database":
        self._connection = sqlite3.connect(":memory:")
        self._connection.create_function("least", 2, min)
        self._connection.create_function("raise_error", 1, _raise)
        self._connection.create_aggregate("max_by", 2, MaxBy)
        for schema in ("control", "store"):
            self._run(f"ATTACH ':memory:' AS {schema}")
        names = [field.name for field in fields(Commit)]
        self._run(f"CREATE TABLE control.ledger ({', '.join(names)})")
        self._run("CREATE TABLE store.silver_happened (_chain, _height, _commit, value)")
        for name in ("silver_things", "silver_things_base"):
            self._run(f"CREATE TABLE store.{name} (_chain, _height, _commit, _deleted, k, value)")
        for chain, steps in self._steps.items():
            for row, step in zip(_ledger_rows(chain, steps), steps, strict=True):
                self._insert("control.ledger", _values(row, names))
                self._write(chain, step)
        for row in self._others:
            self._insert("control.ledger", _values(row, names))
        query = visible_view(Namespace()).partition("\nAS ")[2]
        self._run(f"CREATE TABLE control.visible AS {query}")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        """What a view shows. SQLite has no anti join: the same as a subquery."""
        query = view.partition("\nAS ")[2]
        query = re.sub(r"LEFT ANTI JOIN t ON (.*)", r"WHERE NOT EXISTS (SELECT 1 FROM t WHERE \1)", query)
        return sorted(self._connection.execute(query).fetchall())

    def _write(self, chain: str, step: Step) -> None:
        row = step.commit
        if row.kind == ADVANCE:
            for height in range(row.base_height + 1, row.height + 1):
                block = Block(height, row.commit_id)
                self._insert("store.silver_happened", [chain, height, row.commit_id, _value(block)])
                for key, value in _changes(block).items():
                    self._insert("store.silver_things", [chain, height, row.commit_id, value is None, key, value or ""])
        elif row.kind == COMPACT:
            for key, value in _state(step.world, row.height).items():
                self._insert("store.silver_things_base", [chain, row.height, row.commit_id, False, key, value])

    def _insert(self, table: str, values: Sequence[Any]) -> None:
        self._connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def _run(self, statement: str) -> None:
        self._connection.execute(statement)


def _values(row: Commit, names: Sequence[str]) -> list[Any]:
    return [value if isinstance(value := getattr(row, name), (int, str)) else None for name in names]


def _ledger_rows(chain: str, steps: Sequence[Step]) -> list[Commit]:
    return [Commit(**{**vars(row), "chain": chain, "lane": chain}) for row in commits(steps)]


def _last(steps: Sequence[Step]) -> World:
    return steps[-1].world if steps else World(0)


def _value(block: Block) -> str:
    return f"{block.height}/{block.commit_id}"


def _changes(block: Block) -> dict[str, str | None]:
    """What a block does to the state: a key and its new value, None if it is deleted."""
    number = block.height + block.commit_id
    changed = {"abc"[block.height % 3]: _value(block), "de"[number % 2]: _value(block)}
    return {key: None if (number + i) % 4 == 0 else value for i, (key, value) in enumerate(changed.items())}


def _state(world: World, height: int | None = None) -> dict[str, str]:
    state: dict[str, str | None] = {}
    for block in world.blocks:
        if height is None or block.height <= height:
            state.update(_changes(block))
    return {key: value for key, value in state.items() if value is not None}


# Where a view may start from the base


def ledger(*rows: Commit) -> LedgerView:
    return LedgerView(rows)


def test_only_state_tables_that_were_compacted_are_pruned() -> None:
    advance, compact = commit(ADVANCE, 0, 9, 1), commit(COMPACT, 5, 5, 2)
    assert usable_bases(STATE, ledger()) == {}
    assert usable_bases(STATE, ledger(advance)) == {}
    assert usable_bases(STATE, ledger(advance, compact)) == {CHAIN: compact}
    assert reader_view(Namespace(), EVENT, {CHAIN: compact}) == reader_view(Namespace(), EVENT)


def test_files_are_skipped_only_below_the_chain_that_is_compacted_least() -> None:
    rows = [commit(ADVANCE, 0, 9, 1), commit(COMPACT, 5, 5, 2)]
    other = [Commit(**{**vars(row), "chain": "two"}) for row in (rows[0], commit(COMPACT, 3, 3, 2))]
    assert usable_bases(STATE, ledger(*rows, *other)) == {CHAIN: rows[1], "two": other[1]}
    assert usable_bases(STATE, ledger(*rows, other[0])) == {CHAIN: rows[1]}
    text = reader_view(Namespace(), STATE, bases({CHAIN: 5, "two": 3}))
    assert "AND (t._height > 3 OR t._chain NOT IN ('one', 'two'))" in text
    assert "AND (kind = 'rollback' OR height > 3 OR chain NOT IN ('one', 'two'))" in text
    held = f"WHERE (x._commit = {commit(COMPACT, 5, 5, 9).commit_id} AND x._chain IN ('one', 'two'))"
    assert held in text, "older bases are skipped too"
    assert "CASE a.chain WHEN 'one' THEN 5 WHEN 'two' THEN 3 ELSE -1 END AS low" in text


def test_a_view_over_a_small_base_names_each_table_once() -> None:
    """Each is planned, and its files are looked up, as often as it is named."""
    text = reader_view(Namespace(), STATE, bases({CHAIN: 5, "two": 3}, rows=SMALL))
    assert [text.count(name) for name in ("`ledger`", "`silver_things` ", "`silver_things_base`")] == [1, 1, 1]
    assert "WITH" not in text, "Spark plans again what WITH names wherever it is used"
    assert "ANTI JOIN" not in text, "rows of a base that two chains of a lane share are counted once"
    apart = {chain: replace(base, commit_id=base.height) for chain, base in bases({CHAIN: 5, "two": 3}, rows=SMALL).items()}
    for large in (apart, bases({CHAIN: 5}, rows=LARGE), bases({CHAIN: 5}, rows={})):
        assert "ANTI JOIN t" in reader_view(Namespace(), STATE, large)


def test_a_view_over_very_many_chains_names_each_once() -> None:
    text = reader_view(Namespace(), STATE, bases({f"shard-{i}": 9 for i in range(1024)}))
    assert text.count("'shard-7'") == 1 and "LEFT ANTI JOIN" in text, "only where it starts from the base"
    assert "x._commit IN" not in text


def test_a_base_that_a_rollback_went_below_does_not_prune() -> None:
    rows = [commit(ADVANCE, 0, 9, 1), commit(COMPACT, 5, 5, 2), commit(ROLLBACK, 9, 4, 3)]
    assert usable_bases(STATE, ledger(*rows)) == {}


def test_other_stages_do_not_matter_to_pruning() -> None:
    rows = [commit(ADVANCE, 0, 9, 1), commit(COMPACT, 5, 5, 2), commit(ADVANCE, 0, 2, 1, stage="bronze.other")]
    assert usable_bases(STATE, ledger(*rows)) == {CHAIN: rows[1]}


# Migrations


def folder(tmp_path: Path, name: str, *files: str) -> Path:
    directory = tmp_path / name
    (directory / "migrations").mkdir(parents=True)
    for file in files:
        (directory / "migrations" / file).write_text(f"ALTER TABLE store.{file[:4]} …", encoding="utf-8")
    return directory


def test_migrations_are_found_in_order_with_a_digest(tmp_path: Path) -> None:
    found = find([folder(tmp_path, "a", "0002_second.sql", "0001_first.sql"), tmp_path / "none"])
    assert [(m.number, m.name) for m in found] == [(1, "0001_first.sql"), (2, "0002_second.sql")]
    assert len({m.digest for m in found}) == 2
    assert find([]) == []


@pytest.mark.parametrize("name", ["1_short.sql", "first.sql", "0001-dash.sql", "00001_long.sql", "0001_.sql.sql"])
def test_a_migration_with_another_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"a migration is named 0001_what_changes\.sql"):
        find([folder(tmp_path, "a", name)])


def test_a_number_may_be_used_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"0001_one\.sql and 0001_other\.sql have the same number"):
        find([folder(tmp_path, "a", "0001_one.sql"), folder(tmp_path, "b", "0001_other.sql")])


def test_migrations_of_two_folders_are_ordered_by_number(tmp_path: Path) -> None:
    found = find([folder(tmp_path, "a", "0002_two.sql"), folder(tmp_path, "b", "0001_one.sql")])
    assert [m.number for m in found] == [1, 2]


def test_statements_are_split_and_comments_dropped() -> None:
    text = "-- why; because\nALTER TABLE store.a ADD COLUMN b INT;\n\n  -- more\nALTER TABLE\n  control.c DROP COLUMN d;\n;"
    statements = Migration(1, "0001_x.sql", text).statements()
    assert statements == ["ALTER TABLE store.a ADD COLUMN b INT", "ALTER TABLE\n  control.c DROP COLUMN d"]
    assert Migration(1, "0001_x.sql", "-- nothing\n").statements() == []


def test_a_semicolon_in_quotes_does_not_end_a_statement() -> None:
    text = "ALTER TABLE store.a ADD COLUMN b INT COMMENT 'one; two'"
    assert Migration(1, "0001_x.sql", text).statements() == [text]


@pytest.mark.parametrize("statement", ["DROP TABLE store.a", "ALTER TABLE silver.a ADD COLUMN b INT", "UPDATE store.a SET b = 1"])
def test_a_migration_may_only_alter_physical_tables(statement: str) -> None:
    catalog: Any = SimpleNamespace(namespace=Namespace())
    spark: Any = None
    with pytest.raises(BadInput, match=r"may only ALTER TABLE store\.<name> or control\.<name>"):
        _apply(spark, catalog, statement)


def test_the_projects_own_migrations_are_in_order_and_alter_only() -> None:
    for migration in find([tables_dir()]):
        assert migration.statements(), migration.name
        for statement in migration.statements():
            assert re.match(r"ALTER TABLE (store|control)\.\w+\s", statement, re.IGNORECASE), f"{migration.name}: {statement}"


# The page


def test_the_page_in_docs_is_what_the_declarations_say() -> None:
    written = (project_root() / "docs" / "tables.md").read_text(encoding="utf-8")
    assert written == page(queryable(load(tables_dir()))), "run: lake tables --markdown > docs/tables.md"


def test_the_page_explains_every_column_of_every_table() -> None:
    text = page({table.name: table for table in [STATE, EVENT]})
    assert text.index("## silver.happened") < text.index("## silver.things")
    assert "| chain | STRING | Chain that the row belongs to |" in text
    assert "| value | STRING | Its value |" in text
    assert "*state*, one row per (chain, k); written by silver.test" in text
    assert text.count("| height | BIGINT |") == 1, "a state view has no height"
    assert not re.search(r"\| _\w+ \|", text)


def test_control_tables_come_last_in_the_page() -> None:
    names = re.findall(r"^## (\S+)", page(queryable(load(tables_dir()))), re.MULTILINE)
    kinds = [name.startswith("control.") for name in names]
    assert kinds == sorted(kinds) and any(kinds) and not all(kinds)
