"""Whether a physical table is what its declaration says, and in words where it is not."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chainlake.lake.ddl import Column, Table

CONSTRAINT = "delta.constraints."
PROPERTIES = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "100"}
"""What every table has, whatever it declares. (The reader without Spark knows no deletion vectors.)"""


@dataclass(frozen=True)
class Physical:
    """A table as Delta has it: type and nullability by column, properties with constraints among them, clustering columns."""

    columns: Mapping[str, tuple[str, bool]]
    properties: Mapping[str, str]
    cluster_by: tuple[str, ...]


def properties(table: Table) -> dict[str, str]:
    """The properties that a table must have."""
    packs_itself = not table.cluster_by and table.kind != "index"  # a clustered table would be rewritten at every append
    kept = f"interval {table.retention.days} days"
    return {
        **PROPERTIES,
        "delta.logRetentionDuration": kept,
        "delta.deletedFileRetentionDuration": kept,  # of the log and of files together: one is of no use without the other
        "delta.autoOptimize.autoCompact": str(packs_itself).lower(),
        **dict(table.properties),
    }


def drift(found: Physical, table: Table, checks: bool = True) -> str:
    """What differs between a physical table and its declaration; empty if nothing does. Bases have no `checks`: what they hold
    was checked when it was written."""
    differences = [
        *_columns(found.columns, table.stored),
        *_constraints(found.properties, table.checks if checks else ()),
        *_clustering(found.cluster_by, table.cluster_by),
        *_properties(found.properties, properties(table)),
    ]
    return "; ".join(differences)


def _columns(found: Mapping[str, tuple[str, bool]], declared: Iterable[Column]) -> Iterable[str]:
    wanted = {column.name: column for column in declared}
    missing = [name for name in wanted if name not in found]
    unknown = [name for name in found if name not in wanted]
    if missing:
        yield f"missing {', '.join(missing)}"
    if unknown:
        yield f"unknown {', '.join(unknown)}"
    for name, column in wanted.items():
        kind, nullable = found.get(name, (simple(column.type), column.nullable))
        if kind != simple(column.type):
            yield f"{name} is {kind}, declared {column.type}"
        if nullable != column.nullable:
            yield f"{name} {'may' if nullable else 'must not'} be NULL, declared {'with' if nullable else 'without'} NOT NULL"


def _constraints(found: Mapping[str, str], declared: Iterable[tuple[str, str]]) -> Iterable[str]:
    there = {key.removeprefix(CONSTRAINT): rule for key, rule in found.items() if key.startswith(CONSTRAINT)}
    wanted = {name.lower(): rule for name, rule in declared}
    for name in sorted({*there, *wanted}):
        if name not in there:
            yield f"constraint {name} is missing"
        elif name not in wanted:
            yield f"unknown constraint {name}"
        elif _plain(there[name]) != _plain(wanted[name]):
            yield f"constraint {name} is CHECK ({there[name]}), declared CHECK ({wanted[name]})"


def _clustering(found: tuple[str, ...], declared: tuple[str, ...]) -> Iterable[str]:
    if found != declared:
        yield f"clustered by ({', '.join(found)}), declared ({', '.join(declared)})"


def _properties(found: Mapping[str, str], declared: Mapping[str, str]) -> Iterable[str]:
    for name, value in declared.items():
        if found.get(name) != value:
            yield f"property {name} is {found.get(name, 'not set')}, declared {value}"


def _plain(rule: str) -> str:
    """A condition without what makes no difference."""
    return re.sub(r"[\s`]", "", rule)


def simple(declared: str) -> str:
    """A declared type as Spark prints it."""
    text = re.sub(r"\s*([<>,:()])\s*", r"\1", declared.strip().lower())
    text = re.sub(r"(?<=[<,])(\w+) (?=\w)", r"\1:", text)
    return re.sub(r"\binteger\b", "int", re.sub(r"\blong\b", "bigint", text))
