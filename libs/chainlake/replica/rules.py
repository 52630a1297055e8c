"""What a data command does: it is checked against Meta as of one index, then carried out on the rows of its table.

Checks run in this order: table, user, lock, columns, primary key. A command that fails any of them changes nothing, and its
error is its result. Rows are JSON texts under a key that is JSON too, `[user, value of the primary key]`, so that equal keys
are equal texts and users never meet.
"""

import json
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from chainlake.replica.commands import Command
from chainlake.replica.history import MetaHistory, TableAt
from chainlake.replica.meta import Refused


class Result(NamedTuple):
    """What came of a command: rows changed, or an error that changed nothing."""

    rows_changed: int = 0
    error: str | None = None


class Operation(NamedTuple):
    """A data command that passed all checks that need no rows.

    `keys` are the rows that it concerns. `values` are the rows themselves (Insert), or the changes and what the row must hold
    besides its key (Update).
    """

    type: str
    table_id: str
    table_index: int
    dropped_index: int | None
    keys: tuple[str, ...]
    values: tuple[str, ...]


Rows = MutableMapping[str, str]
"""The rows of one table in one shard, by key."""
Changes = dict[str, str | None]
"""Keys with their rows after a command; None for those that are gone."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def effective_watermark(before: int, required: int) -> int:
    """The watermark of an entry: the highest of its own and of all entries before it in its shard. So entries of a shard are
    satisfied in log order, whatever each of them asks for."""
    return max(before, required)


def executes_at(required: int, watermark: int, at_hand: int) -> int:
    """The Meta index that a command is executed against: its watermark, wherever Meta is by then; without a stamp, what is at
    hand."""
    return watermark if required else at_hand


def resolve(command: Command, index: int, meta: MetaHistory) -> Operation:
    """The operation of a command against Meta as of an index; `Refused` with the first check that fails."""
    table = check_target(command["table_id"], command.get("user_id"), index, meta)
    keys, values = _RESOLVERS[command["type"]](command, table, _encode(command.get("user_id")))
    return Operation(command["type"], command["table_id"], table.created_index, table.dropped_index, keys, values)


def check_target(table_id: str, user_id: str | None, index: int, meta: MetaHistory) -> TableAt:
    """The table of a command as of an index; `Refused` if it is not there, or its user may not write."""
    table = meta.table(table_id, index)
    if table is None:
        raise Refused("table not found")
    if user_id is not None:
        user = meta.user(user_id, index)
        if user is None:
            raise Refused("user not found")
        if user.get("locked"):
            raise Refused("user locked")
    return table


def execute(operation: Operation, rows: Mapping[str, str]) -> tuple[Result, Changes]:
    """What an operation does to the rows of its table."""
    return _EXECUTORS[operation.type](operation, rows)


def apply(rows: Rows, changes: Changes) -> None:
    """Make the changes."""
    for key, row in changes.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


def row_key(user_id: str | None, value: Any) -> str:
    """The key of a user's row."""
    return f"[{_encode(user_id)},{_encode(value)}]"


def shown_key(key: str) -> tuple[str | None, str]:
    """User and primary key as people read them: texts as they are, other values as JSON."""
    user_id, value = json.loads(key)
    return user_id, value if isinstance(value, str) else _encode(value)


def _check_columns(table: TableAt, *objects: Mapping[str, Any]) -> None:
    for one in objects:
        if not table.columns.issuperset(one):
            raise Refused("unknown column")


def _keys(user: str, values: list[Any]) -> tuple[str, ...]:
    if None in values:
        raise Refused("primary key missing")
    return tuple([f"[{user},{_encode(value)}]" for value in values])


Resolved = tuple[tuple[str, ...], tuple[str, ...]]


def _resolve_insert(command: Command, table: TableAt, user: str) -> Resolved:
    rows = command["rows"]
    _check_columns(table, *rows)
    return _keys(user, [row.get(table.primary_key) for row in rows]), tuple([_encode(row) for row in rows])


def _resolve_update(command: Command, table: TableAt, user: str) -> Resolved:
    """The row to change; if the change is of its primary key, the row that it becomes as well."""
    wanted, updates = dict(command["filter"]), command["updates"]
    _check_columns(table, wanted, updates)
    values = [wanted.pop(table.primary_key, None)]
    if table.primary_key in updates:
        values.append(updates[table.primary_key])
    return _keys(user, values), (_encode(updates), _encode(wanted))


def _resolve_delete(command: Command, table: TableAt, user: str) -> Resolved:
    return _keys(user, command["pk_values"]), ()


_RESOLVERS: Mapping[str, Callable[[Command, TableAt, str], Resolved]] = {
    "Insert": _resolve_insert,
    "Update": _resolve_update,
    "Delete": _resolve_delete,
}


def _insert(operation: Operation, rows: Mapping[str, str]) -> tuple[Result, Changes]:
    changes: Changes = dict(zip(operation.keys, operation.values, strict=True))
    if len(changes) < len(operation.keys) or any(key in rows for key in operation.keys):
        return Result(0, "primary key exists"), {}
    return Result(len(changes)), changes


def _update(operation: Operation, rows: Mapping[str, str]) -> tuple[Result, Changes]:
    old, new = operation.keys[0], operation.keys[-1]
    updates, wanted = map(json.loads, operation.values)
    row = json.loads(rows[old]) if old in rows else None
    if row is None or any(key not in row or _encode(row[key]) != _encode(value) for key, value in wanted.items()):
        return Result(0), {}
    if new != old and new in rows:
        return Result(0, "primary key exists"), {}
    return Result(1), {old: None, new: _encode({**row, **updates})}


def _delete(operation: Operation, rows: Mapping[str, str]) -> tuple[Result, Changes]:
    changes: Changes = {key: None for key in operation.keys if key in rows}
    return Result(len(changes)), changes


_EXECUTORS: Mapping[str, Callable[[Operation, Mapping[str, str]], tuple[Result, Changes]]] = {
    "Insert": _insert,
    "Update": _update,
    "Delete": _delete,
}
