"""The files in tables/ are the single source of schema: this reads them.

A file is a comment block (description, then `-- kind:`, `-- key:`, `-- stages:`, `-- retention:`) and one CREATE TABLE. Data
tables get the kernel's columns in front, so that Delta always keeps statistics on them. `-- while_degraded: column = value, …`
says what the view shows for a chain while one of its stages is degraded, since a stage that stopped cannot write it.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from chainlake.errors import BadInput
from chainlake.lake.names import split

KINDS = ("event", "state", "index", "control")
_HEADER = re.compile(r"(kind|key|stages|retention|while_degraded):")


@dataclass(frozen=True)
class Column:
    """One column as declared."""

    name: str
    type: str
    nullable: bool
    comment: str

    def sql(self) -> str:
        null = "" if self.nullable else " NOT NULL"
        return f"`{self.name}` {self.type}{null} COMMENT '{self.comment.replace(chr(39), chr(92) + chr(39))}'"


CONTENTS = ("payload", "data", "chunk", "node", "datum", "reference_script", "txout", "refused")
"""Columns of bytes that nobody looks up or reads in hex."""

CHAIN = Column("_chain", "STRING", False, "Chain that the row belongs to")
HEIGHT = Column("_height", "BIGINT", False, "Block that the row describes")
COMMIT = Column("_commit", "BIGINT", False, "Attempt that wrote the row, see control.ledger")
DELETED = Column("_deleted", "BOOLEAN", False, "The key is gone from this height on")


@dataclass(frozen=True)
class Table:
    """One table: what people see (`columns`) and what is stored (`stored`)."""

    name: str
    description: str
    kind: str
    key: tuple[str, ...]
    stages: tuple[str, ...]
    retention: timedelta
    columns: tuple[Column, ...]
    checks: tuple[tuple[str, str], ...]
    cluster_by: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]
    while_degraded: tuple[tuple[str, str], ...] = ()

    @property
    def is_control(self) -> bool:
        return self.kind == "control"

    @property
    def stored(self) -> tuple[Column, ...]:
        """Columns of the physical table, the kernel's first."""
        if self.is_control:
            return self.columns
        kernel = (CHAIN, HEIGHT, COMMIT, DELETED) if self.kind == "state" else (CHAIN, HEIGHT, COMMIT)
        return kernel + self.columns

    @property
    def hex_columns(self) -> dict[str, str]:
        """What views also show as 0x and hex digits, by the name it has there: all bytes but opaque contents."""
        return {f"{one.name}_hex": one.name for one in self.columns if one.type == "BINARY" and one.name not in CONTENTS}

    @property
    def state_key(self) -> tuple[str, ...]:
        """Key columns of a state table as stored, without the chain."""
        return tuple(name for name in self.key if name != "chain")


def parse(text: str, source: str) -> Table:
    """The table that a DDL file declares."""
    comments = [line[2:].strip() for line in text.splitlines() if line.startswith("--")]
    header = dict(line.split(":", 1) for line in comments if _HEADER.match(line))
    description = " ".join(line for line in comments if not _HEADER.match(line))
    statement = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip().rstrip(";").strip()
    name, body, tail = _statement(statement, source)
    kind = header.get("kind", "").strip()
    if kind not in KINDS:
        raise BadInput(f"{source}: kind is {kind!r}; write '-- kind: ' and one of {', '.join(KINDS)}")
    items = _split_top(body)
    columns = tuple(_column(item, source) for item in items if not item.upper().startswith("CONSTRAINT"))
    cluster_by, properties = _clauses(tail, name, source)
    table = Table(
        name=name,
        description=description,
        kind=kind,
        key=_names(header.get("key", "")),
        stages=_names(header.get("stages", "")),
        retention=_retention(header.get("retention", ""), source),
        columns=columns,
        checks=tuple(_check(item, source) for item in items if item.upper().startswith("CONSTRAINT")),
        cluster_by=cluster_by,
        properties=properties,
        while_degraded=tuple(_assignment(item, source) for item in _split_top(header.get("while_degraded", ""))),
    )
    _check_table(table, source)
    return table


def load(directory: Path) -> dict[str, Table]:
    """All tables of a directory `<layer>/<name>.sql`, by name."""
    tables: dict[str, Table] = {}
    for path in sorted(directory.glob("*/*.sql")):
        if path.parent.name == "migrations":
            continue
        table = parse(path.read_text(encoding="utf-8"), str(path))
        if table.name != f"{path.parent.name}.{path.stem}":
            raise BadInput(f"{path} declares {table.name}: file and table must have the same name")
        tables[table.name] = table
    return tables


def _statement(statement: str, source: str) -> tuple[str, str, str]:
    match = re.match(r"CREATE TABLE (\w+\.\w+)\s*\(", statement)
    if not match:
        raise BadInput(f"{source}: expected 'CREATE TABLE layer.name (' and found {statement[:40]!r}")
    split(match.group(1))
    end = _closing(statement, match.end() - 1)
    if end < 0:
        raise BadInput(f"{source}: the column list of {match.group(1)} is not closed")
    return match.group(1), statement[match.end() : end], statement[end + 1 :]


def _closing(text: str, opening: int) -> int:
    depth, quoted = 0, False
    for i in range(opening, len(text)):
        if text[i] == "'":
            quoted = not quoted
        elif not quoted and text[i] in "()":
            depth += 1 if text[i] == "(" else -1
            if depth == 0:
                return i
    return -1


def _split_top(body: str) -> list[str]:
    """Split at commas that are in no bracket and no quotes. Within parentheses, < and > compare: only outside do they
    enclose a type."""
    items, parens, angles, quoted, start = [], 0, 0, False, 0
    for i, char in enumerate(body):
        if char == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "()":
            parens += 1 if char == "(" else -1
        elif parens == 0 and char in "<>":
            angles += 1 if char == "<" else -1
        elif parens == 0 and angles == 0 and char == ",":
            items.append(body[start:i])
            start = i + 1
    return [item.strip() for item in [*items, body[start:]] if item.strip()]


def _column(item: str, source: str) -> Column:
    match = re.match(r"(\w+)\s+([^']+?)(\s+NOT NULL)?(?:\s+COMMENT\s+'([^']*)')?$", item, re.DOTALL)
    if not match or not match.group(4):
        raise BadInput(f"{source}: column {item[:40]!r} must read: name TYPE [NOT NULL] COMMENT 'text'")
    return Column(match.group(1), " ".join(match.group(2).split()), not match.group(3), match.group(4))


def _check(item: str, source: str) -> tuple[str, str]:
    match = re.match(r"CONSTRAINT (\w+) CHECK \((.*)\)$", item, re.DOTALL | re.IGNORECASE)
    if not match:
        raise BadInput(f"{source}: constraint {item[:40]!r} must read: CONSTRAINT name CHECK (condition)")
    return match.group(1), match.group(2)


def _retention(text: str, source: str) -> timedelta:
    match = re.fullmatch(r"\s*([1-9]\d{0,4}) days?\s*", text)
    if not match:
        raise BadInput(f"{source}: retention is {text.strip()!r}; write '-- retention: 30 days', as long as Delta keeps versions")
    return timedelta(days=int(match.group(1)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _clauses(tail: str, name: str, source: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """What follows the column list: CLUSTER BY and TBLPROPERTIES, each at most once, and nothing that would be ignored."""
    found: dict[str, str] = {}
    rest = tail.strip()
    while rest:
        match = re.match(r"(CLUSTER\s+BY|TBLPROPERTIES)\s*\(", rest, re.IGNORECASE)
        end = _closing(rest, match.end() - 1) if match else -1
        clause = " ".join(match.group(1).upper().split()) if match else ""
        if not match or end < 0 or clause in found:
            known = "CLUSTER BY (…) and TBLPROPERTIES (…)"
            raise BadInput(f"{source}: {rest[:40]!r} after the columns of {name}: only {known}, once each, may follow")
        found[clause] = rest[match.end() : end]
        rest = rest[end + 1 :].strip()
    properties = tuple(_property(item, source) for item in _split_top(found.get("TBLPROPERTIES", "")))
    return _names(found.get("CLUSTER BY", "")), properties


def _property(item: str, source: str) -> tuple[str, str]:
    match = re.fullmatch(r"'([^']+)'\s*=\s*'([^']*)'", item)
    if not match:
        raise BadInput(f"{source}: property {item[:40]!r} must read: 'name' = 'value'")
    return match.group(1), match.group(2)


def _assignment(item: str, source: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\w+)\s*=\s*('[^']*'|\w+)", item)
    if not match:
        raise BadInput(f"{source}: {item[:40]!r} in while_degraded must read: column = value")
    return match.group(1), match.group(2)


def _check_table(table: Table, source: str) -> None:
    names = [column.name.lower() for column in table.columns]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{source}: column {name!r} is declared twice in {table.name}: remove one")
    known = {column.name for column in table.stored} | {"chain", "height"}
    for name in (*table.key, *table.cluster_by):
        if name not in known:
            raise BadInput(f"{source}: {name!r} in key or CLUSTER BY is no column of {table.name}")
    for name, _ in table.while_degraded:
        if name not in {column.name for column in table.columns}:
            raise BadInput(f"{source}: {name!r} in while_degraded is no column of {table.name}")
    if not table.key:
        raise BadInput(f"{source}: no key; write '-- key: ' and the columns that identify a row")
    if not table.is_control and not table.stages:
        raise BadInput(f"{source}: no stages; write '-- stages: ' and the stages that write {table.name}")
    reserved = {"_chain", "_height", "_commit", "_deleted", "chain"}
    for column in table.columns:
        if not table.is_control and (column.name in reserved or (table.kind != "state" and column.name == "height")):
            raise BadInput(f"{source}: column {column.name!r} is the kernel's; choose another name")
