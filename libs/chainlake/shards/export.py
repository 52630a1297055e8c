"""A shard of a lake as a snapshot, read from files: no Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from chainlake.errors import BadInput
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.state_rows import KeyedRows, event_rows
from chainlake.shards.machine import Shard
from chainlake.shards.reader import STAGE, ShardReader
from chainlake.shards.snapshot import Header, make
from chainlake.shards.state import PLACEHOLDER, TREE

RAW = "raw.shards"
STEPS = 4
"""How often `export` tells that it is further: the root is read, the streams are, their tree is made, the snapshot is."""


def export(
    home: Path, chain: str, height: int | None = None, *, prefix: str = "", step: Callable[[], object] = lambda: None
) -> tuple[Header, list[bytes]]:
    """The snapshot of a chain after a block, by default the last one."""
    reader = ShardReader(home, chain, prefix=prefix)
    root = reader.root(height)
    step()
    mode = TREE if root.app_hash == root.state_root else PLACEHOLDER
    streams = reader.streams(root.height)
    step()
    shard = Shard(reader.registry(root.height), mode, root.height, streams)
    step()
    if shard.state_root != root.state_root:
        raise BadInput(f"the streams of {chain} at block {root.height} do not have its root: run lake verify")
    lake = EmbeddedLake(home, prefix)
    block = _block(lake, chain, root.height)
    made = make(shard, str(block["block"]["header"].get("chain_id", "")), block, _results(lake, chain, root.height))
    step()
    return made


def _block(lake: EmbeddedLake, chain: str, height: int) -> dict[str, Any]:
    """The block as received, without the results that a node may have sent with it."""
    for row in _rows(lake, RAW, "raw.blocks", ("payload",), chain, height):
        found: dict[str, Any] = orjson.loads(row["payload"])
        found.pop("block_results", None)
        return found
    raise BadInput(f"raw.blocks has no block {height} of {chain}: see lake status")


def _results(lake: EmbeddedLake, chain: str, height: int) -> list[dict[str, Any]]:
    """What came of the transactions of the block, in order."""
    columns = ("tx_index", "code", "log", "message")
    found = {
        row["tx_index"]: {**{name: row[name] for name in columns}, "events": []}
        for row in _rows(lake, STAGE, "silver.shard_tx_results", columns, chain, height)
    }
    events = _rows(lake, STAGE, "silver.shard_events", ("tx_index", "event_index", "type", "attributes"), chain, height)
    for row in sorted(events, key=lambda one: one["event_index"]):
        pairs = [[one["key"], one["value"]] for one in row["attributes"]]
        found[row["tx_index"]]["events"].append({"type": row["type"], "attributes": pairs})
    return [found[index] for index in sorted(found)]


def _rows(lake: EmbeddedLake, stage: str, table: str, columns: tuple[str, ...], chain: str, height: int) -> list[dict[str, Any]]:
    ledger = LedgerReader(lake, chain, (stage,))
    ledger.refresh()
    return event_rows(KeyedRows(lake, table, "_height", columns), chain, ledger.view.of(stage, chain), height)
