"""What `lake verify` computes again: the UTxO root, every trie's root, and that requests are outputs at the cage."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from chainlake.cage.rules import request_in
from chainlake.cage.settings import Settings
from chainlake.cage.transaction import TxOut
from chainlake.encoding import short
from chainlake.merkle import csmt, mpf
from chainlake.merkle.blake import blake
from chainlake.merkle.csmt_node import fold, leaf

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

MOST = 5
LEAVES = "path binary, value binary"
TRIES = "token_id binary, root binary"


def state_problems(lake: "Lake", chain: str) -> list[str]:
    """Roots and requests at the head that are not what the UTxO set and the facts say."""
    head = lake.ledger.read(["silver.cage"]).of("silver.cage", chain).head()
    if head is None:
        return []
    return [*_utxo_root(lake, chain, head.height), *_tries(lake, chain), *_requests(lake, chain)]


def by_address_problems(lake: "Lake", chain: str) -> list[str]:
    """Outputs that silver.utxos and gold.utxos_by_address do not both have."""
    head = lake.ledger.read(["gold.cage"]).of("gold.cage", chain).head()
    if head is None:
        return []
    columns = ("tx_id", "tx_index", "address", "lovelace")
    one = lake.table("silver.utxos", chain=chain, height=head.height).select(*columns)
    other = lake.table("gold.utxos_by_address", chain=chain).select(*columns)
    wrong = one.exceptAll(other).unionByName(other.exceptAll(one)).limit(MOST).collect()
    return [f"output {row[0].hex()}#{row[1]} of {chain} is not the same by address" for row in wrong]


def _utxo_root(lake: "Lake", chain: str, height: int) -> list[str]:
    utxos = lake.table("silver.utxos", chain=chain).select("tx_id", "tx_index", "txout")
    rows = utxos.mapInArrow(_leaves, LEAVES).collect()
    top = fold([leaf(path, value) for path, value in sorted((bytes(path), bytes(value)) for path, value in rows)])
    root = top and top.root()
    said = (
        lake.table("silver.chain_roots", chain=chain)
        .filter(F.col("height") == height)
        .select("utxo_root", "utxo_count")
        .collect()
    )
    expected = (bytes(said[0][0]) if said[0][0] is not None else None, said[0][1]) if said else (None, 0)
    if (root, len(rows)) == expected:
        return []
    return [
        f"the {len(rows)} unspent outputs of {chain} at block {height} have root {short(root or b'')},"
        f" the block has {expected[1]} and {short(expected[0] or b'')}"
    ]


def _leaves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in ("tx_id", "tx_index", "txout")), strict=True)
        made = [(csmt.txin_key(tx_id, number), blake(txout)) for tx_id, number, txout in rows]
        arrays = [pa.array([row[at] for row in made], pa.binary()) for at in (0, 1)]
        yield pa.RecordBatch.from_arrays(arrays, ["path", "value"])


def _tries(lake: "Lake", chain: str) -> list[str]:
    facts = lake.table("silver.trie_facts", chain=chain).select("token_id", "key", "value")
    made = facts.repartition("token_id").sortWithinPartitions("token_id").mapInArrow(_roots, TRIES)
    tokens = lake.table("silver.cage_tokens", chain=chain).select("token_id", F.col("root").alias("said"), "tracked")
    rows = tokens.join(made, "token_id", "full").collect()
    found = []
    for row in rows:
        if row["said"] is None:
            found.append(f"there are facts of token {short(row['token_id'])} of {chain}, which is not there")
        elif row["tracked"] and bytes(row["said"]) != bytes(row["root"] or mpf.EMPTY):
            found.append(
                f"the trie of token {short(row['token_id'])} of {chain} has root {short(row['root'] or mpf.EMPTY)},"
                f" its state says {short(row['said'])}"
            )
    return found


def _roots(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    tries: dict[bytes, mpf.Trie] = {}
    for batch in batches:
        for token, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            tries.setdefault(token, mpf.Trie()).insert(key, value)
    rows = [(token, trie.root()) for token, trie in tries.items()]
    arrays = [pa.array([row[at] for row in rows], pa.binary()) for at in (0, 1)]
    yield pa.RecordBatch.from_arrays(arrays, ["token_id", "root"])


def _requests(lake: "Lake", chain: str) -> list[str]:
    """Requests that wait are exactly the outputs at the cage whose datum is one."""
    cage = Settings.of(lake.chain(chain).options).cage
    if cage is None:
        return []
    at_cage = lake.table("silver.utxos", chain=chain).filter(F.col("address") == F.lit(bytearray(cage.address)))
    outputs = {
        (bytes(tx_id), number)
        for tx_id, number, datum in at_cage.select("tx_id", "tx_index", "datum").collect()
        if request_in(cage, TxOut(cage.address, 0, (), None, datum and bytes(datum), None, b"")) is not None
    }
    waiting = {
        (bytes(row[0]), row[1]) for row in lake.table("silver.cage_requests", chain=chain).select("tx_id", "tx_index").collect()
    }
    return [
        f"request {tx_id.hex()}#{number} of {chain} is not both an output and a request"
        for tx_id, number in sorted(outputs ^ waiting)[:MOST]
    ]
