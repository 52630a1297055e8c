"""Commands by the million to operations: what `rules.resolve` gives, with the commonest command, an Insert of one row, read from
its canonical text."""

import json
from json.encoder import encode_basestring
from typing import Any

import orjson
import pyarrow as pa

from chainlake.replica.columns import has_long_numbers
from chainlake.replica.history import MetaHistory, TableAt
from chainlake.replica.meta import Refused
from chainlake.replica.rules import Operation, check_target, resolve, row_key

_PLAIN = frozenset(("type", "table_id", "user_id", "required_meta_index", "rows"))


class Resolver:
    """Resolves the commands of one shard. What a table and a user are as of an index is looked up once."""

    def __init__(self, meta: MetaHistory) -> None:
        self._meta = meta
        self._targets: dict[tuple[str, str | None, int], tuple[TableAt, str]] = {}

    def operations(self, commands: pa.Array, indexes: list[int], at_hand: list[int]) -> list[Operation | str]:
        """The operation of each command against Meta as of an index, or the error with which it is refused. A drop that is not at
        hand has not happened yet."""
        loads = json.loads if has_long_numbers(commands) else orjson.loads
        resolve_one = self._resolve
        found: list[Operation | str] = []
        for text, index, now in zip(commands.to_pylist(), indexes, at_hand, strict=True):
            try:
                operation = resolve_one(text, loads(text), index)
            except Refused as refused:
                found.append(str(refused))
                continue
            if operation.dropped_index is not None and operation.dropped_index > now:
                operation = operation._replace(dropped_index=None)
            found.append(operation)
        return found

    def _resolve(self, text: str, command: dict[str, Any], index: int) -> Operation:
        if command["type"] != "Insert" or len(command["rows"]) != 1 or not command.keys() <= _PLAIN:
            return resolve(command, index, self._meta)
        (row,) = command["rows"]
        table_id = command["table_id"]
        table, user = self._target(table_id, command.get("user_id"), index)
        if not row.keys() <= table.columns:
            raise Refused("unknown column")
        value = row.get(table.primary_key)
        if value is None:
            raise Refused("primary key missing")
        key = f"[{user},{encode_basestring(value)}]" if type(value) is str else row_key(command.get("user_id"), value)
        # members are sorted, so only a number stands before the rows, and only texts behind them
        written = text[text.index("[") + 1 : text.rindex('],"table_id":')]
        return Operation("Insert", table_id, table.created_index, table.dropped_index, (key,), (written,))

    def _target(self, table_id: str, user_id: str | None, index: int) -> tuple[TableAt, str]:
        """The table, and the user as JSON."""
        found = self._targets.get((table_id, user_id, index))
        if found is None:
            table = check_target(table_id, user_id, index, self._meta)
            found = table, "null" if user_id is None else encode_basestring(user_id)
            self._targets[table_id, user_id, index] = found
        return found
