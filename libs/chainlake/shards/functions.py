"""Shards in Spark SQL: `SELECT * FROM prove_stream(chain, stream, height)`, a proof as a row."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainlake.errors import BadInput
from chainlake.shards.query import parse_stream_id
from chainlake.shards.reader import Proven, ShardReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from chainlake.lake.lake import Lake

COLUMNS = (
    "chain string, height bigint, app_hash binary, state_root binary, stream_id binary, stream_exists boolean, value binary,"
    " proof binary, proof_json string"
)


def prove_stream(lake: "Lake", chain: str, stream_id: bytes, height: int | None = None) -> "DataFrame":
    """A proof of what a block says of a stream, as a row."""
    proven = ShardReader(_home(lake), chain, prefix=lake.namespace.prefix).prove(stream_id, height)
    return lake.spark.createDataFrame([_row(chain, proven)], COLUMNS)


def register(lake: "Lake") -> None:
    """Make `prove_stream(chain, stream, height)` known to this session's SQL; a NULL height means the last block."""
    from pyspark.sql.functions import udtf

    home, prefix = _home(lake), lake.namespace.prefix

    class ProveStream:
        """One row with an ICS-23 proof of existence or absence."""

        def eval(self, chain: str, stream: str, height: int | None) -> Iterator[tuple[Any, ...]]:
            yield _row(chain, ShardReader(home, chain, prefix=prefix).prove(parse_stream_id(stream), height))

    made: Any = udtf(ProveStream, returnType=COLUMNS)
    lake.spark.udtf.register("prove_stream", made)


def _row(chain: str, proven: Proven) -> tuple[Any, ...]:
    import orjson

    root, proof = proven.root, proven.proof
    text = orjson.dumps(proof.to_json()).decode()
    found = (chain, root.height, root.app_hash, root.state_root, proven.stream_id)
    return (*found, proven.value is not None, proven.value, proof.to_bytes(), text)


def _home(lake: "Lake") -> Path:
    if lake.catalog.location is None:
        raise BadInput(
            "proofs are made from the files of a local lake: here, use chainlake.merkle.smt_prove on silver.shard_tree"
        )
    return lake.catalog.location.parent
