"""The folds of the replica stages without Spark: tables are lists of rows, and a batch is folded as the stages fold it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from chainlake.replica import meta_fold, row_fold, shard_fold
from chainlake.replica.columns import typed
from chainlake.replica.commands import command_text
from chainlake.replica.entries import Entry
from chainlake.replica.groups import META, OLD_META, is_meta
from chainlake.replica.replica import Replica
from chainlake.replica.row_fold import Drop
from chainlake.replica.sequence import AGAIN, UNEXPECTED
from chainlake.replica.timeline import Progress, Timeline

Row = dict[str, Any]
PIECE = 7
"""Rows of an Arrow batch: few, so that groups and deliveries are cut."""


def pieces(rows: Sequence[Row], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    for at in range(0, len(rows), PIECE):
        yield pa.RecordBatch.from_pylist(
            [{name: row.get(name) for name in schema.names} for row in rows[at : at + PIECE]], schema
        )


def unpacked(batches: Iterable[pa.RecordBatch], kind: str) -> list[Row]:
    """The rows of one kind."""
    return [row for batch in batches for rows in batch.column(kind).to_pylist() for row in rows or ()]


def _as(row: Row, columns: Mapping[str, str], tag: int) -> Row:
    """A row in columns of entries."""
    return {"tag": tag, "group_name": row.get("group_name"), **{name: row[own] for name, own in columns.items()}}


@dataclass
class Tables:
    """The silver tables of one replica, with their history. `at_once`, all versions of rows and objects go into the folds; else
    the rows that operations touch are found in between, and only the newest versions are given."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    head: int = 0
    at_once: bool = True

    def state(self, table: str, key: Sequence[str], height: int | None = None) -> list[Row]:
        newest: dict[tuple[Any, ...], Row] = {}
        for row in self.rows.get(table, []):
            if height is None or row["_height"] <= height:
                held = newest.get(tuple(row[name] for name in key))
                assert held is None or held["_height"] != row["_height"], f"{table} has two rows of {row} at one height"
                if held is None or held["_height"] < row["_height"]:
                    newest[tuple(row[name] for name in key)] = row
        return [row for row in newest.values() if not row.get("_deleted")]

    def add(self, table: str, batches: Iterable[pa.RecordBatch], out: str) -> None:
        found = unpacked(batches, out)
        assert all(self.head < row["_height"] for row in found)
        self.rows.setdefault(table, []).extend(found)

    def progress(self) -> dict[str, Progress]:
        return {row["group_name"]: Progress(*(row[n] for n in Progress._fields)) for row in self.state("applied", ["group_name"])}

    def fold(self, deliveries: Sequence[Sequence[Entry]]) -> None:
        """Take the next deliveries in one batch."""
        low, before = self.head, self.progress()
        entries = self._arrived(deliveries)
        started = (
            before[META].applied_index if META in before else sum(p.applied_index for g, p in before.items() if g in OLD_META)
        )
        meta = self._meta([row for row in entries if is_meta(row["group_name"])], before, started)
        reached = [(row["_height"], row["meta_index"]) for row in unpacked(meta, meta_fold.INDEX)]
        timeline = Timeline(started, *zip(*reached, strict=True)) if reached else Timeline(started)
        gone = [row for row in self.rows.get("changes", []) if row["kind"] == "table" and row["definition"] is None]
        drops = [Drop(row["_height"], row["id"], row["created_index"]) for row in gone if row["_height"] > low]
        self._shards([row for row in entries if not is_meta(row["group_name"])], before, timeline, low, drops)
        self.head = low + len(deliveries)

    def _arrived(self, deliveries: Sequence[Sequence[Entry]]) -> list[Row]:
        return [
            {
                "_height": self.head + 1 + at,
                "received_height": self.head + 1 + at,
                "tx_index": place,
                "group_name": entry.group,
                "log_index": entry.log_index,
                "log_term": entry.log_term,
                "type": entry.command["type"],
                "required_meta_index": entry.required,
                "table_id": entry.command.get("table_id"),
                "user_id": entry.command.get("user_id"),
                "command": command_text(entry.command),
            }
            for at, delivery in enumerate(deliveries)
            for place, entry in enumerate(delivery)
        ]

    def _meta(self, entries: list[Row], before: dict[str, Progress], started: int) -> list[pa.RecordBatch]:
        versions = sorted(self.rows.get("objects", []), key=lambda row: row["_height"])
        held = [{**row, "tag": 0} for row in (versions if self.at_once else self.state("objects", ["kind", "id"]))]
        entries.sort(key=lambda row: (row["_height"], row["tx_index"]))
        rows = [*held, *({**row, "tag": 1} for row in entries)]
        found = list(meta_fold.fold_meta(pieces(rows, typed(*meta_fold.INPUT)), before, started))
        assert {row["status"] for row in unpacked(found, UNEXPECTED)} <= {AGAIN}
        self.add("objects", found, meta_fold.OBJECT)
        self.add("changes", found, meta_fold.CHANGE)
        self.add("results", found, meta_fold.RESULT)
        applied = unpacked(found, meta_fold.APPLIED)
        self.rows.setdefault("applied", []).extend(
            {**row, **Progress(row["log_index"], row["log_term"], row["log_index"])._asdict()} for row in applied
        )
        return found

    def _shards(self, entries: list[Row], before: dict[str, Progress], timeline: Timeline, low: int, drops: list[Drop]) -> None:
        pending = self.state("pending", ["group_name", "log_index"])
        pending.sort(key=lambda row: (row["group_name"], row["log_index"]))
        satisfied = [row for row in pending if row["watermark"] <= timeline.end]
        drained = {row["group_name"] for row in satisfied}
        waiting = {row["group_name"]: row for row in reversed(pending) if row["watermark"] > timeline.end}
        waiting = {group: row for group, row in waiting.items() if group in drained}
        rows = [
            *({**row, "tag": shard_fold.DRAINED} for row in satisfied),
            *({**row, "tag": shard_fold.ARRIVED} for row in entries),
            *({**row, "tag": shard_fold.WAITING} for row in waiting.values()),
        ]
        groups = {row["group_name"] for row in rows}
        for group in groups:
            versions = [row for row in self.rows.get("changes", []) if row["kind"] in ("table", "user")]
            rows += [{**_as(row, shard_fold.VERSION_AS, shard_fold.VERSION), "group_name": group} for row in versions]
        if self.at_once:
            lives, gone = self.rows.get("rows", []), self.rows.get("aside", [])
            rows += [_as({**row, "table_index": None}, shard_fold.ROW_AS, shard_fold.LIVE) for row in lives]
            rows += [_as(row, shard_fold.ROW_AS, shard_fold.DROPPED) for row in gone]
        rows.sort(key=lambda row: [row.get(name) or 0 for name in shard_fold.ORDER])
        given = pieces(rows, typed(*shard_fold.INPUT))
        found = list(shard_fold.fold_shards(given, before, timeline, low, drops if self.at_once else None))
        for table, out in (("pending", shard_fold.PENDING), ("results", shard_fold.RESULT), ("applied", shard_fold.APPLIED)):
            self.add(table, found, out)
        if self.at_once:
            self.add("rows", found, row_fold.ROW)
            self.add("aside", found, row_fold.ASIDE)
            return
        operations = unpacked(found, shard_fold.OPERATION)
        held = [
            *(
                {**row, "tag": row_fold.LIVE, "log_index": None}
                for row in self.state("rows", ["group_name", "table_id", "row_key"])
            ),
            *(
                {**row, "tag": row_fold.DROPPED, "log_index": None}
                for row in self.state("aside", ["group_name", "table_id", "table_index", "row_key"])
            ),
            *({**row, "tag": row_fold.OPERATION} for row in operations),
        ]
        held.sort(key=lambda row: (row["group_name"], row["tag"], row["log_index"] or 0))
        made = list(row_fold.fold_rows(pieces(held, typed(*row_fold.INPUT)), drops))
        self.add("rows", made, row_fold.ROW)
        self.add("aside", made, row_fold.ASIDE)
        self.add("results", made, row_fold.RESULT)

    def compare(self, replica: Replica, height: int) -> None:
        """Everything at a delivery is what the plain replica has after it."""
        rows = self.state("rows", ["group_name", "table_id", "row_key"], height)
        assert {(row["group_name"], row["table_id"], row["row_key"]): row["row"] for row in rows} == replica.visible_rows()
        pending: dict[str, list[int]] = {}
        for row in self.state("pending", ["group_name", "log_index"], height):
            pending.setdefault(row["group_name"], []).append(row["log_index"])
        assert {group: sorted(indexes) for group, indexes in pending.items()} == replica.waiting()
        applied = {row["group_name"]: row for row in self.state("applied", ["group_name"], height)}
        assert {group: (row["applied_index"], row["applied_term"]) for group, row in applied.items()} == replica.applied()
        for group, shard in replica.shards.items():
            first = shard.pending[0] if shard.pending else None
            expected = (len(shard.pending), first and first.watermark, first and first.received)
            now = applied[group]
            assert (now["applied_index"] - now["executed_index"], now["waits_for"], now["waiting_since"]) == expected
        objects = {(row["kind"], row["id"]): row for row in self.state("objects", ["kind", "id"], height)}
        assert {
            key: (json.loads(row["definition"]), row["created_index"], row["updated_index"]) for key, row in objects.items()
        } == {key: (dict(one.definition), one.created_index, one.updated_index) for key, one in replica.meta.objects.items()}
        results = {
            (row["_height"], row["group_name"], row["log_index"], row["type"], row["rows_changed"] or 0, row["error"])
            for row in ({"rows_changed": 0, **row} for row in self.rows.get("results", []))
            if row["_height"] <= height
        }
        assert results == {(a.delivery, a.group, a.log_index, a.type, *a.result) for a in replica.results}
