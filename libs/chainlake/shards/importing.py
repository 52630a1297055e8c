"""A snapshot taken into a lake: a chain that begins with the snapshot's block, and the state that it had there.

Raw gets the block itself, so that the next one can be linked to it. Silver gets the streams, their tree and the root as that
block left them. From there on the stages go on as with any chain: the next header must carry the snapshot's app hash.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.encoding import to_hex
from chainlake.errors import BadInput, CheckFailed
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.stage import Output
from chainlake.raw.stages import transactions_of
from chainlake.shards import differences
from chainlake.shards.machine import Shard
from chainlake.shards.nodes import NODES_DDL, SNAPSHOT
from chainlake.shards.parts import IMAGE, TREE_ROW, to_batch
from chainlake.shards.registry import read_registry
from chainlake.shards.snapshot import Header, check_block, registered
from chainlake.shards.state import StreamState
from chainlake.sources.base import RawBlock
from chainlake.sources.datasource import record_batch

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

RESULTS_DDL = "tx_index int, code int, log string, message string"
EVENTS_DDL = "tx_index int, event_index int, type string, attributes array<struct<key: string, value: string>>"
ROOTS_DDL = "app_hash binary, state_root binary, stream_count bigint, tree_depth int"


def import_snapshot(
    lake: "Lake", chain: str, source: str, options: Mapping[str, str], header: Header, shard: Shard, root: bytes | None = None
) -> None:
    """Make a chain of a checked snapshot; its next blocks come from `source`. Interrupted, it may be run again."""
    if root is not None and root != header.state_root:
        raise CheckFailed(f"the snapshot has root 0x{header.state_root.hex()}, expected is 0x{root.hex()}: do not use it")
    block = check_block(header)
    check_options(header, options)
    refuse_known(lake, chain, header, block)
    made = lake.add_chain(chain, "comet", source, options)
    mode = {"app_hash": header.mode, SNAPSHOT: str(header.height)}
    lake.chains.add(replace(made, options={**made.options, **mode}))
    _commit(lake, "raw.shards", chain, block, _raw(lake, chain, block))
    lake.run_stage("bronze.shards", chains=chain)
    with _handover(lake) as directory:
        tables = _silver(lake, chain, header, shard, directory)
        _commit(lake, "silver.shards", chain, block, tables, {"state": header.state_root})
    lake.run_stage("gold.shards", chains=chain)


def check_options(header: Header, options: Mapping[str, str]) -> None:
    """What is said of the chain must not contradict the snapshot: its first block would show it, but then the chain is there."""
    wanted = options.get("app_hash", header.mode)
    if wanted != header.mode:
        raise BadInput(f"the snapshot is of a chain with app_hash={header.mode}, not {wanted}: leave the option out")
    if path := options.get("registry"):
        ours, theirs = set(registered(read_registry(path), header.height)), set(header.registry)
        for one in sorted(ours ^ theirs, key=lambda record: record.permanent_index):
            lacking = "the snapshot" if one in ours else path
            raise CheckFailed(
                f"{lacking} does not have node {to_hex(one.address)}, index {one.permanent_index} from block {one.from_height}: "
                f"the registry of block {header.height} must be that of the snapshot"
            )


def refuse_known(lake: "Lake", chain: str, header: Header, block: RawBlock) -> None:
    """A chain that has blocks stays what it is, unless they are an import of this snapshot that was interrupted."""
    for stage in ("raw.shards", "silver.shards"):
        head = lake.ledger.read([stage]).of(stage, chain).head()
        begun = chain in lake.chains.all() and lake.chain(chain).options.get(SNAPSHOT) == str(header.height)
        if head is None:
            continue
        same = (head.height, head.block_hash, head.roots.get("state", header.state_root))
        if not begun or same != (header.height, block.hash, header.state_root):
            raise BadInput(f"{chain} has blocks up to {head.height} already: import under another name")


def _commit(
    lake: "Lake",
    name: str,
    chain: str,
    block: RawBlock,
    tables: Mapping[str, DataFrame],
    roots: Mapping[str, bytes] | None = None,
) -> None:
    """One commit of one block, unless it is there."""
    stage = lake.stages.get(name)
    with lake.lease(name, stage.lane_of(chain)) as lease:
        run = LaneRun(lake, stage, [chain], lease, 1, 1)
        run.refresh()
        if run.head(chain) is None:
            output = Output(tables, {chain: roots} if roots else {})
            run.write({chain: (block.height - 1, block.height)}, output, {chain: block.hash}, Timings())
    lake.runs.close()


def _raw(lake: "Lake", chain: str, block: RawBlock) -> dict[str, DataFrame]:
    rows = lake.spark.createDataFrame(pa.Table.from_batches([record_batch(0, [block])]))
    blocks = rows.withColumn("_chain", F.lit(chain)).withColumnRenamed("height", "_height")
    return {"raw.blocks": blocks.drop("transactions"), "raw.transactions": transactions_of(blocks)}


@contextmanager
def _handover(lake: "Lake") -> Iterator[Path | None]:
    """Where a local Spark finds many rows; None where it shares no files with us."""
    if lake.catalog.location is None:
        yield None
        return
    with TemporaryDirectory(prefix="import-", dir=lake.catalog.location.parent) as directory:
        yield Path(directory)


def _silver(lake: "Lake", chain: str, header: Header, shard: Shard, directory: Path | None) -> dict[str, DataFrame]:
    def placed(frame: DataFrame) -> DataFrame:
        return frame.withColumns({"_chain": F.lit(chain), "_height": F.lit(header.height).cast("bigint")})

    def rows(found: list[Any], ddl: str) -> DataFrame:
        return placed(lake.spark.createDataFrame(found, ddl))

    results = header.results
    events = [
        (one["tx_index"], index, event["type"], [tuple(pair) for pair in event["attributes"]])
        for one in results
        for index, event in enumerate(one["events"])
    ]
    depth = max([2, *map(len, shard.rows)])
    nodes = [(chain, header.height, one.permanent_index, one.address, one.from_height) for one in shard.registry.records]
    return {
        "silver.streams": placed(_frame(lake, "streams", IMAGE, _streams(shard), directory)),
        "silver.shard_tree": placed(_frame(lake, "tree", TREE_ROW, _tree(shard), directory)),
        "silver.shard_roots": rows([(header.app_hash, header.state_root, header.stream_count, depth)], ROOTS_DDL),
        "silver.shard_nodes": lake.spark.createDataFrame(nodes, NODES_DDL),
        "silver.shard_tx_results": rows([(r["tx_index"], r["code"], r["log"], r["message"]) for r in results], RESULTS_DDL),
        "silver.shard_events": rows(events, EVENTS_DDL),
        "silver.shard_differences": lake.spark.createDataFrame([], differences.DDL),
    }


def _frame(lake: "Lake", name: str, schema: pa.Schema, columns: dict[str, list[Any]], directory: Path | None) -> DataFrame:
    """Many rows as a frame: by a file if possible. The server would read those in a request again for each step of its plan."""
    count = len(next(iter(columns.values())))
    table = pa.Table.from_batches([to_batch(schema, columns, count)]).select(list(columns))
    if directory is None:
        return lake.spark.createDataFrame(table)
    pq.write_table(table, directory / f"{name}.parquet")
    return lake.spark.read.parquet(str(directory / f"{name}.parquet"))


def _streams(shard: Shard) -> dict[str, list[Any]]:
    ordered = [shard.streams[key] for key in sorted(shard.streams)]
    return {name: [getattr(one, name) for one in ordered] for name in StreamState._fields}


def _tree(shard: Shard) -> dict[str, list[Any]]:
    nodes = sorted(shard.rows.values(), key=lambda node: (node.prefix[:-1], node.prefix))
    return {name: [getattr(node, name) for node in nodes] for name in ("prefix", "leaves", "hash", "key")}
