"""The cage of a batch in Spark: events, requests, tokens and the rows of their tries."""

from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.cage import detect, token_rows
from chainlake.cage.datums import Cage
from chainlake.cage.utxos import KEY, Utxos, refuse_first
from chainlake.lake.stage import Batch

TABLES = ("silver.cage_events", "silver.cage_tokens", "silver.cage_requests", "silver.trie_facts", "silver.trie_nodes")
OF_TOKENS = "kind IN ('boot', 'update', 'reject', 'burn')"
REQUEST = ["token_id", "owner", "key", "operation", "old_value", "new_value", "fee", "submitted_at", "created_height"]


STATE = ["owner", "root", "max_fee", "process_time", "retract_time"]
EVENT = ["_height", "tx_index", "event_index", "kind"]
OF_EVENT = [*STATE, "was_root", "is_whole", "operations"]
FACT = ["_height", "_deleted", "token_id", "key", "value"]
Tables = dict[str, DataFrame | None]
"""None where it is known that there is nothing to write."""


def cage_of(batch: Batch, chain: str, cage: Cage | None, utxos: Utxos) -> Tables:
    """The five tables of the cage."""
    tables: Tables = dict.fromkeys(TABLES)
    if cage is None:
        return tables
    parts = _parts(batch, cage, utxos).repartition("_height", "tx_index")
    ordered = parts.sortWithinPartitions("_height", "tx_index", "part", "position")
    found = batch.keep(ordered.mapInArrow(detect.detector(cage), detect.DETECTED))
    all_events, requests, of_tokens, burned = _counted(found)
    if all_events:
        tables["silver.cage_events"] = _events(found)
    if requests:
        tables["silver.cage_requests"] = _requests(found)
    if of_tokens:
        tables |= _tries(batch, chain, found.filter(OF_TOKENS), burned)
    return tables


def _counted(found: DataFrame) -> tuple[int, int, int, list[bytes]]:
    """How many events, requests that come or go and events of tokens there are, and the tokens that end."""
    kind = F.col("kind")
    counts = [F.count(kind), F.count_if(kind.isNull()), F.count_if(F.expr(OF_TOKENS))]
    events, requests, of_tokens, ends = found.agg(*counts, F.collect_set(F.when(kind == "burn", F.col("token_id")))).collect()[0]
    return events, requests, of_tokens, [bytes(one) for one in ends]


def _tries(batch: Batch, chain: str, events: DataFrame, burned: list[bytes]) -> dict[str, DataFrame]:
    """Tokens after their events, and the facts and rows of their tries that changed."""
    own = events.select(F.lit(chain).alias("_chain"), "token_id", "operations")
    tokens = batch.state("silver.cage_tokens", own.select("_chain", "token_id"))
    nodes = _nodes(batch, chain, own, burned)
    folded = batch.keep(_ordered(tokens, nodes, events).mapInArrow(token_rows.fold, token_rows.FOLDED))
    told = folded.filter("what IN ('error', 'burn')").select("what", "token_id", "_height", "error").collect()
    refuse_first(chain, [(height, text) for what, _, height, text in told if what == "error"])
    lost = {bytes(token) for what, token, _, _ in told if what == "burn"}.difference(burned)
    if lost:  # their tries are not known any longer, which nobody could tell before, and all rows of them have to go
        return _tries(batch, chain, events, [*burned, *sorted(lost)])
    names = {"token": "silver.cage_tokens", "fact": "silver.trie_facts", "node": "silver.trie_nodes"}
    tables = {name: folded.filter(F.col("what") == what) for what, name in names.items()}
    if burned:
        facts = tables["silver.trie_facts"].select(*FACT)
        tables["silver.trie_facts"] = facts.unionByName(_burned_facts(batch, chain, folded, burned))
    return tables


def _parts(batch: Batch, cage: Cage, utxos: Utxos) -> DataFrame:
    """What transactions spend, make and mint at the cage, and what they spend of a script that is not known. One that took no
    effect has no id here, and so no event."""
    at_cage = F.col("address") == F.lit(bytearray(cage.address))
    told = batch.read("bronze.cardano_redeemers").filter(f"is_valid AND tag IN ({detect.SPENT}, {detect.MINTED})")
    told = told.selectExpr("_height", "tx_index", "tag AS part", "position", "data AS redeemer")
    spent = utxos.taken.filter(at_cage).selectExpr(
        "_height",
        "spender_index AS tx_index",
        f"{detect.SPENT} AS part",
        "position",
        "CASE WHEN spender_role = 'input' THEN spender END AS tx_id",
        "tx_id AS place_id",
        "tx_index AS place",
        *_output(),
    )
    made = utxos.made.filter(at_cage).selectExpr(
        "made_height AS _height",
        "maker_index AS tx_index",
        f"{detect.CREATED} AS part",
        "tx_index AS position",
        "CASE WHEN maker_role = 'output' THEN tx_id END AS tx_id",
        "tx_id AS place_id",
        "tx_index AS place",
        *_output(),
        "NULL AS redeemer",
    )
    minted = _minted(batch, cage).selectExpr(
        "_height",
        "tx_index",
        f"{detect.MINTED} AS part",
        "position",
        "tx_id",
        "NULL AS place_id",
        "NULL AS place",
        *("NULL AS address", "NULL AS assets", "NULL AS datum", "NULL AS created_height"),
        "own.name AS name",
        "own.quantity AS quantity",
    )
    unknown = utxos.unknown.selectExpr("_height", "spender_index AS tx_index", f"{detect.SPENT} AS part", "position")
    asked = spent.unionByName(minted).unionByName(unknown, allowMissingColumns=True)
    asked = asked.join(told, ["_height", "tx_index", "part", "position"], "left")
    asked = asked.filter(f"part = {detect.MINTED} OR address IS NOT NULL OR redeemer IS NOT NULL")
    return asked.unionByName(made)


def _minted(batch: Batch, cage: Cage) -> DataFrame:
    """What transactions mint under the cage's policy, with its place in the order of their policies: what redeemers count in."""
    policy, own = F.col("policy"), F.lit(bytearray(cage.policy))
    minted = batch.read("bronze.cardano_mints").filter("is_valid").filter(policy <= own)
    of_cage = F.when(policy == own, F.struct(F.col("asset_name").alias("name"), "quantity"))
    before = F.size(F.collect_set(F.when(policy < own, policy)))
    found = minted.groupBy("_height", "tx_index", "tx_id").agg(before.alias("position"), F.collect_list(of_cage).alias("all"))
    return found.select("_height", "tx_index", "tx_id", "position", F.explode("all").alias("own"))


def _output() -> tuple[str, ...]:
    return ("address", "assets", "datum", "created_height", "NULL AS name", "NULL AS quantity")


def _nodes(batch: Batch, chain: str, own: DataFrame, burned: list[bytes]) -> DataFrame:
    """The rows of tries on the way to touched keys, and all of tokens that end."""
    ends = F.col("token_id").isin([bytearray(one) for one in burned]) if burned else F.lit(False)
    paths = own.filter(~ends).select("_chain", "token_id", F.explode_outer("operations.path").alias("path"))
    prefixes = F.transform(
        F.sequence(F.lit(0), F.lit(token_rows.BUCKET)), lambda n: F.coalesce("path", F.lit("")).substr(F.lit(1), n)
    )
    wanted = paths.select("_chain", "token_id", F.explode(prefixes).alias("bucket"))
    nodes = batch.state("silver.trie_nodes", wanted)
    if burned:
        whole = batch.spark.createDataFrame([(chain, bytearray(one)) for one in burned], "_chain string, token_id binary")
        nodes = nodes.unionByName(batch.state("silver.trie_nodes", whole))
    return nodes


def _ordered(tokens: DataFrame, nodes: DataFrame, events: DataFrame) -> DataFrame:
    """What is kept of each token, then its events, token after token."""
    frames = (
        tokens.select("token_id", *STATE, "created_height", "updated_height", "tracked", F.lit(token_rows.TOKEN).alias("part")),
        nodes.select("token_id", "path", "node", F.lit(token_rows.NODE).alias("part")),
        events.select("token_id", *EVENT, *OF_EVENT, F.lit(token_rows.EVENT).alias("part")),
    )
    whole = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
    return whole.repartition("token_id").sortWithinPartitions("token_id", "part", "_height", "tx_index", "event_index")


def _events(found: DataFrame) -> DataFrame:
    """Rows of silver.cage_events."""
    single = F.col("kind").isin("request", "retract")
    return found.filter("kind IS NOT NULL").withColumns(
        {
            "requests": F.transform(
                "operations", lambda one: F.struct(one["tx_id"].alias("tx_id"), one["tx_index"].alias("tx_index"))
            ),
            "request_tx_id": F.when(single, F.col("operations")[0]["tx_id"]),
            "request_tx_index": F.when(single, F.col("operations")[0]["tx_index"]),
        }
    )


def _requests(found: DataFrame) -> DataFrame:
    """Rows of silver.cage_requests. One that is made and used up in one block never waited."""
    rows = found.filter("kind IS NULL").groupBy(
        "_height", F.col("request_tx_id").alias("tx_id"), F.col("request_tx_index").alias("tx_index")
    )
    last = F.first(F.struct(F.col("is_gone").alias("_deleted"), *REQUEST)).alias("last")
    counted = rows.agg(F.count(F.lit(1)).alias("times"), last)
    return counted.filter("times = 1").select("_height", *KEY, "last.*")


def _burned_facts(batch: Batch, chain: str, folded: DataFrame, burned: list[bytes]) -> DataFrame:
    """Facts of tokens that ended which the batch had not touched until then: gone with the token."""
    ends = folded.filter("what = 'burn'").groupBy("token_id").agg(F.min("_height").alias("_height"))
    whole = batch.spark.createDataFrame([(chain, bytearray(one)) for one in burned], "_chain string, token_id binary")
    kept = batch.state("silver.trie_facts", whole).select("token_id", "key", "value", F.lit(True).alias("_deleted"))
    touched = folded.filter("what = 'fact'").select("token_id", "key", F.col("_height").alias("touched_height"))
    left = kept.join(ends, "token_id").alias("kept")
    known = [left["token_id"] == touched["token_id"], left["key"] == touched["key"], touched["touched_height"] <= left["_height"]]
    return left.join(touched, known, "left_anti").select(*FACT)
