"""What `lake verify` computes again: the UTxO tree, every trie, their roots, and that requests are outputs at the cage."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from chainlake.cage.arrow_rows import batched, tuples
from chainlake.cage.datums import Cage
from chainlake.cage.rules import request_in
from chainlake.cage.settings import Settings
from chainlake.cage.transaction import TxOut
from chainlake.cage.utxo_fold import PART_DEPTH, PREFIX, to_path
from chainlake.cage.utxo_rows import packed, unpacked
from chainlake.encoding import short
from chainlake.merkle import csmt, mpf

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake
    from chainlake.lake.reader import Snapshot

MOST = 5
PARTS_AGAIN = "part string, top binary, outputs bigint, wrong bigint"
PARTS_SCHEMA = pa.schema([("part", pa.string()), ("top", pa.binary()), ("outputs", pa.int64()), ("wrong", pa.int64())])
TRIES_AGAIN = "token_id binary, root binary, wrong bigint"
TRIES_SCHEMA = pa.schema([("token_id", pa.binary()), ("root", pa.binary()), ("wrong", pa.int64())])


def state_problems(lake: "Lake", chain: str) -> list[str]:
    """Roots and requests at the head that are not what the UTxO set and the facts say, all of one moment: writers go on."""
    now = lake.moment(["silver.utxos"])
    head = now.ledger.of("silver.cage", chain).head()
    if head is None:
        return []
    cage = Settings.of(lake.chain(chain).options).cage
    return [*_utxo_root(now, chain, head.height), *_tries(now, chain), *_requests(now, chain, cage)]


def by_address_problems(lake: "Lake", chain: str) -> list[str]:
    """Outputs that silver.utxos and gold.utxos_by_address do not both have."""
    now = lake.moment(["silver.utxos", "gold.utxos_by_address"])
    head = now.ledger.of("gold.cage", chain).head()
    if head is None or now.ledger.is_overtaken("gold.cage", chain, "silver.cage"):  # by a fork, which it follows when it runs
        return []
    columns = ("tx_id", "tx_index", "address", "lovelace")
    one = now.table("silver.utxos", chain=chain, height=head.height).select(*columns)
    other = now.table("gold.utxos_by_address", chain=chain).select(*columns)
    wrong = one.exceptAll(other).unionByName(other.exceptAll(one)).limit(MOST).collect()
    return [f"output {row[0].hex()}#{row[1]} of {chain} is not the same by address" for row in wrong]


def _utxo_root(now: "Snapshot", chain: str, height: int) -> list[str]:
    """The tree made again from the outputs, part by part, beside the rows and the root that are kept of it."""
    outputs = now.table("silver.utxos", chain=chain).select(
        F.concat(F.lit(PREFIX), F.substring(F.lower(F.hex("tx_id")), 1, PART_DEPTH - len(PREFIX))).alias("part"),
        *("tx_id", "tx_index", "txout"),
        *_nulls(path="string", node="binary"),
    )
    nodes = now.table("silver.utxo_nodes", chain=chain).select(
        F.substring("path", 1, PART_DEPTH).alias("part"),
        *_nulls(tx_id="binary", tx_index="int", txout="binary"),
        *("path", "node"),
    )
    both = outputs.unionByName(nodes).repartition("part").sortWithinPartitions("part")
    parts = both.mapInArrow(parts_again, PARTS_AGAIN).collect()
    root, count = csmt.combine(unpacked(bytes(row["top"])) for row in parts), sum(row["outputs"] for row in parts)
    said = now.table("silver.chain_roots", chain=chain).filter(F.col("height") == height).select("utxo_root", "utxo_count")
    kept = said.collect()
    expected = (bytes(kept[0][0]) if kept[0][0] is not None else None, kept[0][1]) if kept else (None, 0)
    problems = [
        f"{row['wrong']} rows of the UTxO tree of {chain} under {row['part']} are not those of its outputs"
        for row in sorted(parts)
        if row["wrong"]
    ]
    if (root, count) != expected:
        problems.append(
            f"the {count} unspent outputs of {chain} at block {height} have root {short(root or b'')},"
            f" the block has {expected[1]} and {short(expected[0] or b'')}"
        )
    return problems


def parts_again(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Outputs and rows, sorted by part, to each part's top, and how many rows are not those of the outputs."""
    made = []
    for part, group in groupby(tuples(batches), key=lambda row: row[0]):
        tree, kept, outputs = csmt.Tree(None, to_path(part)), dict[bytes, bytes](), 0
        for _, tx_id, number, txout, path, node in group:
            if path is None:
                tree.insert(csmt.txin_key(tx_id, number), txout)
                outputs += 1
            else:
                kept[to_path(path)] = node
        wrong = _differences(tree.changes(), kept)
        made.append({"part": part, "top": packed(tree.top()), "outputs": outputs, "wrong": wrong})
    yield from batched(made, PARTS_SCHEMA)


def _tries(now: "Snapshot", chain: str) -> list[str]:
    """Every trie made again from its facts, beside the rows and the root that are kept of it."""
    facts = now.table("silver.trie_facts", chain=chain).select("token_id", "key", "value", *_nulls(path="string", node="binary"))
    nodes = now.table("silver.trie_nodes", chain=chain).select(
        "token_id", *_nulls(key="binary", value="binary"), *("path", "node")
    )
    both = facts.unionByName(nodes).repartition("token_id").sortWithinPartitions("token_id")
    made = both.mapInArrow(tries_again, TRIES_AGAIN)
    tokens = now.table("silver.cage_tokens", chain=chain).select("token_id", F.col("root").alias("said"), "tracked")
    found = []
    for row in tokens.join(made, "token_id", "full").collect():
        token = f"token {short(row['token_id'])} of {chain}"
        if row["said"] is None:
            found.append(f"there are facts of {token}, which is not there")
        elif row["tracked"] and bytes(row["said"]) != bytes(row["root"] or mpf.EMPTY):
            found.append(f"the trie of {token} has root {short(row['root'] or mpf.EMPTY)}, its state says {short(row['said'])}")
        if row["wrong"]:
            found.append(f"{row['wrong']} rows of the trie of {token} are not those of its facts")
    return found


def tries_again(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Facts and rows, sorted by token, to each trie's root, and how many rows are not those of the facts."""
    made = []
    for token, group in groupby(tuples(batches), key=lambda row: row[0]):
        trie, kept = mpf.Trie(), dict[bytes, bytes]()
        for _, key, value, path, node in group:
            if path is None:
                trie.insert(key, value)
            else:
                kept[to_path(path)] = node
        made.append({"token_id": token, "root": trie.root(), "wrong": _differences(trie.changes(), kept)})
    yield from batched(made, TRIES_SCHEMA)


def _differences(made: Mapping[bytes, bytes | None], kept: Mapping[bytes, bytes]) -> int:
    """How many rows are there on one side only, or not the same."""
    return sum(made.get(path) != kept.get(path) for path in made.keys() | kept.keys())


def _nulls(**types: str) -> list[Column]:
    return [F.lit(None).cast(kind).alias(name) for name, kind in types.items()]


def _requests(now: "Snapshot", chain: str, cage: Cage | None) -> list[str]:
    """Requests that wait are exactly the outputs at the cage whose datum is one."""
    if cage is None:
        return []
    at_cage = now.table("silver.utxos", chain=chain).filter(F.col("address") == F.lit(bytearray(cage.address)))
    outputs = {
        (bytes(tx_id), number)
        for tx_id, number, datum in at_cage.select("tx_id", "tx_index", "datum").collect()
        if request_in(cage, TxOut(cage.address, 0, (), None, datum and bytes(datum), None, b"")) is not None
    }
    waiting = {
        (bytes(row[0]), row[1]) for row in now.table("silver.cage_requests", chain=chain).select("tx_id", "tx_index").collect()
    }
    return [
        f"request {tx_id.hex()}#{number} of {chain} is not both an output and a request"
        for tx_id, number in sorted(outputs ^ waiting)[:MOST]
    ]
