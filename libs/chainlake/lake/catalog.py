"""From tables/ to a lake: schemas, physical tables, views, migrations, and a check that nothing drifted.

The local catalog is in memory, so tables are registered again when a server is new; a digest in the schema's comment tells
that this was done, and opening a lake then costs one look.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from chainlake.errors import BadInput
from chainlake.lake import views
from chainlake.lake.control import ControlTables, ledger_is_gone
from chainlake.lake.ddl import Table, load
from chainlake.lake.delta_rs import physical_of
from chainlake.lake.deltalog import DeltaLog, never_written
from chainlake.lake.drift import CONSTRAINT, Physical, drift, properties
from chainlake.lake.migrations import find, migrate
from chainlake.lake.names import SCHEMAS, Namespace, physical
from chainlake.lake.visibility import Commit, LedgerView
from chainlake.paths import tables_dir

VIEWS = "views"
"""The name under which those who make views, or must not have them made, wait for each other."""
TABLES = "tables"
"""The name under which those who open a lake that is not made or registered yet wait for each other."""
MAKING_SECONDS = 600.0
"""To make a lake takes half a minute, and much longer on a busy machine."""


class Catalog:
    """The tables of one lake."""

    def __init__(self, spark: SparkSession, namespace: Namespace, location: Path | None, directories: Iterable[Path]) -> None:
        self._spark = spark
        self.namespace = namespace
        self.location = location
        self.directories = list(directories)
        self.control = ControlTables(spark, namespace, location)
        self.tables = {name: table for name, table in load(tables_dir()).items() if table.is_control}
        for directory in self.directories:
            self.tables.update(load(directory))

    def table(self, name: str) -> Table:
        """The declaration of `layer.name`."""
        if name not in self.tables:
            known = ", ".join(sorted(t for t in self.tables if not t.startswith("control.")))
            raise BadInput(f"unknown table {name!r}: there are {known}")
        return self.tables[name]

    def data_tables(self) -> list[Table]:
        return [table for table in self.tables.values() if not table.is_control]

    def of_stage(self, stage: str) -> list[Table]:
        """Tables that a stage writes."""
        return [table for table in self.data_tables() if stage in table.stages]

    def physical_tables(self, table: Table) -> list[str]:
        """Keys of the physical tables behind a declaration: itself and, for state, its base."""
        name = physical(table.name)
        return [name, f"{name}_base"] if table.kind == "state" else [name]

    def full_name(self, stored: str) -> str:
        """SQL name of a physical table in schema store."""
        return f"{self.namespace.schema('store')}.`{stored}`"

    def log(self, stored: str) -> DeltaLog:
        """Delta's log of a physical table."""
        return DeltaLog(self._spark, self.full_name(stored), self._path("store", stored))

    def control_log(self, name: str) -> DeltaLog:
        """Delta's log of a control table."""
        return DeltaLog(self._spark, self.namespace.control(name), self._path("control", name))

    def ensure(self) -> bool:
        """Make or register everything; False if a running server already has it all."""
        digest = self.digest()
        if self._marked(digest):
            return False
        with self.control.alone(TABLES, MAKING_SECONDS):
            if self._marked(digest):  # by another, meanwhile
                return False
            self._make(digest)
        return True

    def _make(self, digest: str) -> None:
        """Delta refuses two who make a table in the same place, so only one does."""
        for schema in SCHEMAS:
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.namespace.schema(schema)}")
        fresh = self._make_tables()
        migrate(self._spark, self, self.directories, fresh)
        self._check_drift()
        self._spark.sql(views.visible_view(self.namespace))
        self.renew_views()
        self._spark.sql(f"COMMENT ON SCHEMA {self.namespace.schema('control')} IS 'chainlake {digest}'")

    def digest(self) -> str:
        """What the declarations and the text of the views say, in short."""
        text = json.dumps({name: [repr(table), views.shown_columns(table)] for name, table in sorted(self.tables.items())})
        text += Path(views.__file__).read_text(encoding="utf-8")  # another version writes its views anew
        changes = [migration.digest for migration in find(self.directories)]
        return hashlib.sha256(f"{text}{changes}{self.location}".encode()).hexdigest()[:16]

    def renew_views(self, only: Iterable[Table] | None = None) -> None:
        """Views of all (or some) tables, where those of state start from the usable bases.

        A rollback below one of them must not come between the look at the ledger and the view (see `widened_views`). Where no
        lock says so, it is seen by looking again.
        """
        tables = list(only) if only is not None else self.data_tables()
        made = None
        with self.control.alone(VIEWS):
            while made != (bases := self._bases(tables)):
                made = bases
                self._make_views(tables, bases)

    @contextmanager
    def widened_views(self, tables: Iterable[Table]) -> Iterator[None]:
        """Inside, views of state read the whole history, so that a rollback below a base can be written. Nobody makes them start
        from it again meanwhile; afterwards they start from the bases that are left."""
        these = list(tables)
        with self.control.alone(VIEWS):
            self._make_views(these, [{} for _ in these])
            yield
        self.renew_views(these)

    def _bases(self, tables: Iterable[Table]) -> list[dict[str, Commit]]:
        from chainlake.lake.ledger import Ledger

        ledger = Ledger(self.namespace, self.control, self.control_log("ledger")).read(check=False)
        return [usable_bases(table, ledger) for table in tables]

    def _make_views(self, tables: Sequence[Table], bases: Sequence[Mapping[str, Commit]]) -> None:
        self._parallel(views.reader_view(self.namespace, *pair) for pair in zip(tables, bases, strict=True))

    def assert_properties(self, stored: str) -> None:
        """Set retention and other properties again, since RESTORE reverts them."""
        self._spark.sql(f"ALTER TABLE {self.full_name(stored)} SET TBLPROPERTIES ({_assigned(self.declared(stored))})")

    def has_constraint(self, schema: str, name: str, check: str) -> bool:
        """Whether a physical table has a CHECK of that name."""
        return f"{CONSTRAINT}{check.lower()}" in self._physical(schema, name).properties

    def declared(self, stored: str) -> Table:
        """The declaration behind a physical table."""
        return next(t for t in self.data_tables() if stored in self.physical_tables(t))

    def _marked(self, digest: str) -> bool:
        try:
            rows = self._spark.sql(f"DESCRIBE SCHEMA {self.namespace.schema('control')}").collect()
        except PySparkException:
            return False
        return any(row[1] == f"chainlake {digest}" for row in rows)

    def _make_tables(self) -> bool:
        """Create or register all tables; True if the lake is new."""
        fresh = not self._is_made("control", "ledger")
        if fresh:
            self._refuse_without_ledger()
        new = [t for t in self.data_tables() if not self._is_made("store", physical(t.name))]
        statements: list[str] = []
        for table in self.tables.values():
            schema = "control" if table.is_control else "store"
            names = [table.name.split(".")[1]] if table.is_control else self.physical_tables(table)
            statements += [self._create(schema, name, table) for name in names]
        self._parallel(statements)
        if self.location is None:  # local tables have their constraints from the start, see _create
            self._parallel(_constraint(self.full_name(physical(t.name)), *check) for t in new for check in t.checks)
        return fresh

    def _refuse_without_ledger(self) -> None:
        """What has rows is not new: its ledger is gone."""
        stored = [name for table in self.data_tables() for name in self.physical_tables(table) if self._is_made("store", name)]
        for name in stored:
            if not never_written(self.log(name).all()):
                raise ledger_is_gone(self._path("control", "ledger") or self.namespace.control("ledger"), name)

    def _create(self, schema: str, name: str, table: Table) -> str:
        path = self._path(schema, name)
        location = f" LOCATION '{views.quoted(str(path))}'" if path else ""
        full = f"{self.namespace.schema(schema)}.`{name}`"
        if path and self._is_made(schema, name):
            return f"CREATE TABLE IF NOT EXISTS {full} USING DELTA{location}"
        if path:
            _clear_unfinished(path)
        columns = ", ".join(column.sql() for column in table.stored)
        cluster = f" CLUSTER BY ({', '.join(table.cluster_by)})" if table.cluster_by else ""
        comment = views.quoted(table.description)
        checks = table.checks if path and name == physical(table.name) else ()
        rules = (f"'{CONSTRAINT}{check}' = '{views.quoted(rule)}'" for check, rule in checks)
        assigned = ", ".join([_assigned(table), *rules])
        return (
            f"CREATE TABLE IF NOT EXISTS {full} ({columns}) USING DELTA{cluster}{location}"
            f" COMMENT '{comment}' TBLPROPERTIES ({assigned})"
        )

    def _check_drift(self) -> None:
        """The physical tables are the declared ones, or an error that says how to make them so."""
        names = [("control", t.name.split(".")[1], t) for t in self.tables.values() if t.is_control]
        names += [("store", stored, t) for t in self.data_tables() for stored in self.physical_tables(t)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda one: self._physical(one[0], one[1]), names))
        for (schema, stored, table), physically in zip(names, found, strict=True):
            if difference := drift(physically, table, checks=stored == physical(table.name)):
                raise BadInput(
                    f"{self.namespace.schema(schema)}.{stored} differs from tables/{table.name.replace('.', '/')}.sql:"
                    f" {difference}; add a numbered file to tables/migrations that changes the table, or undo the change"
                    f" to the declaration"
                )

    def _physical(self, schema: str, name: str) -> Physical:
        path = self._path(schema, name)
        full = f"{self.namespace.schema(schema)}.`{name}`"
        clustered = DeltaLog(self._spark, full, path).clustering()
        if path is not None:
            fields, configured = physical_of(path)
            return Physical(_types(StructType.fromJson(fields)), configured, clustered)
        detail = self._spark.sql(f"DESCRIBE DETAIL {full}").select("properties").collect()[0]
        return Physical(_types(self._spark.table(full).schema), detail[0], clustered)

    def _path(self, schema: str, name: str) -> Path | None:
        return self.location / f"{self.namespace.prefix}{schema}" / name if self.location else None

    def _is_made(self, schema: str, name: str) -> bool:
        path = self._path(schema, name)
        if path is not None:  # who is killed while making a table may leave a log without a version
            return any((path / "_delta_log").glob("[0-9]*.json"))
        return self._spark.catalog.tableExists(f"{self.namespace.schema(schema)}.`{name}`")

    def _parallel(self, statements: Iterable[str]) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._spark.sql, statements))


def _clear_unfinished(path: Path) -> None:
    """Who was killed while making a table may have left its log without a version, and Delta makes none where something is."""
    if path.exists() and not any(path.rglob("*.parquet")):
        shutil.rmtree(path)


def _types(schema: StructType) -> dict[str, tuple[str, bool]]:
    return {field.name: (field.dataType.simpleString(), field.nullable) for field in schema.fields}


def usable_bases(table: Table, ledger: LedgerView) -> dict[str, Commit]:
    """The compact row of the usable base of each chain that has one."""
    histories = ((chain, h) for (stage, chain), h in ledger.histories().items() if stage in table.stages)
    return {chain: base for chain, history in histories if (base := history.base()) is not None}


def _constraint(full_name: str, name: str, condition: str) -> str:
    return f"ALTER TABLE {full_name} ADD CONSTRAINT `{name}` CHECK ({condition})"


def _assigned(table: Table) -> str:
    """The properties of a table, as SQL sets them."""
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties(table).items())
