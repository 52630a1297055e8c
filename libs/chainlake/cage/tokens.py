"""The cage of a batch in Spark: events, requests, tokens and the rows of their tries."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.cage import detect, token_rows
from chainlake.cage.datums import Cage
from chainlake.cage.utxos import KEY, Utxos, refuse_first
from chainlake.lake.stage import Batch

TABLES = ("silver.cage_events", "silver.cage_tokens", "silver.cage_requests", "silver.trie_facts", "silver.trie_nodes")
OF_TOKENS = "kind IN ('boot', 'update', 'reject', 'burn')"
REQUEST = ["token_id", "owner", "key", "operation", "old_value", "new_value", "fee", "submitted_at", "created_height"]


def nothing(batch: Batch) -> dict[str, DataFrame]:
    """The tables of a chain of which the cage is not known."""
    events = batch.spark.createDataFrame([], detect.DETECTED)
    folded = batch.spark.createDataFrame([], token_rows.FOLDED)
    return {"silver.cage_events": _events(events), "silver.cage_requests": _requests(events), **_of_tokens(folded)}


def cage_of(batch: Batch, chain: str, cage: Cage | None, utxos: Utxos) -> dict[str, DataFrame]:
    """The five tables of the cage."""
    if cage is None:
        return nothing(batch)
    parts = _parts(batch, cage, utxos).repartition("_height", "tx_index")
    ordered = parts.sortWithinPartitions("_height", "tx_index", "part", "position")
    found = batch.keep(ordered.mapInArrow(detect.detector(cage), detect.DETECTED))
    events = found.filter(OF_TOKENS)
    ends = F.collect_set(F.when(F.col("kind") == "burn", F.col("token_id")))
    count, burnt = events.agg(F.count(F.lit(1)), ends).collect()[0]
    burned = [bytes(one) for one in burnt]
    if not count:
        return {**nothing(batch), "silver.cage_events": _events(found), "silver.cage_requests": _requests(found)}
    own = events.select(F.lit(chain).alias("_chain"), "token_id", "operations")
    tokens = batch.state("silver.cage_tokens", own.select("_chain", "token_id"))
    nodes = _nodes(batch, chain, own, burned)
    folded = batch.keep(_ordered(tokens, nodes, events).mapInArrow(token_rows.fold, token_rows.FOLDED))
    errors = folded.filter("what = 'error'").select("_height", "error").collect()
    refuse_first(chain, [(height, text) for height, text in errors])
    tables = {"silver.cage_events": _events(found), "silver.cage_requests": _requests(found), **_of_tokens(folded)}
    if burned:
        tables["silver.trie_facts"] = tables["silver.trie_facts"].unionByName(_burned_facts(batch, chain, folded, burned))
    return tables


def _parts(batch: Batch, cage: Cage, utxos: Utxos) -> DataFrame:
    """What transactions spend, make and mint at the cage. One that took no effect has no id here, and so no event."""
    at_cage = F.col("address") == F.lit(bytearray(cage.address))
    told = batch.read("bronze.cardano_redeemers").filter("is_valid AND tag = 0")
    told = told.select("_height", F.col("tx_index").alias("spender_index"), "position", F.col("data").alias("redeemer"))
    spent = utxos.resolved.filter(at_cage).join(told, ["_height", "spender_index", "position"], "left")
    spent = spent.selectExpr(
        "_height",
        "spender_index AS tx_index",
        f"{detect.SPENT} AS part",
        "position",
        "CASE WHEN spender_role = 'input' THEN spender END AS tx_id",
        "tx_id AS place_id",
        "tx_index AS place",
        *_output("redeemer"),
    )
    made = utxos.made.filter(at_cage).selectExpr(
        "made_height AS _height",
        "maker_index AS tx_index",
        f"{detect.CREATED} AS part",
        "tx_index AS position",
        "CASE WHEN maker_role = 'output' THEN tx_id END AS tx_id",
        "tx_id AS place_id",
        "tx_index AS place",
        *_output("NULL AS redeemer"),
    )
    minted = batch.read("bronze.cardano_mints").filter(F.col("policy") == F.lit(bytearray(cage.policy))).filter("is_valid")
    minted = minted.selectExpr(
        "_height",
        "tx_index",
        f"{detect.MINTED} AS part",
        "0 AS position",
        "tx_id",
        "NULL AS place_id",
        "NULL AS place",
        *("NULL AS address", "NULL AS assets", "NULL AS datum", "NULL AS redeemer", "NULL AS created_height"),
        "asset_name AS name",
        "quantity",
    )
    return spent.unionByName(made).unionByName(minted)


def _output(redeemer: str) -> tuple[str, ...]:
    return ("address", "assets", "datum", redeemer, "created_height", "NULL AS name", "NULL AS quantity")


def _nodes(batch: Batch, chain: str, own: DataFrame, burned: list[bytes]) -> DataFrame:
    """The rows of tries on the way to touched keys, and all of tokens that end."""
    ends = F.col("token_id").isin([bytearray(one) for one in burned]) if burned else F.lit(False)
    paths = own.filter(~ends).select("_chain", "token_id", F.explode_outer("operations.path").alias("path")).distinct()
    prefixes = F.transform(
        F.sequence(F.lit(0), F.lit(token_rows.BUCKET)), lambda n: F.coalesce("path", F.lit("")).substr(F.lit(1), n)
    )
    wanted = paths.select("_chain", "token_id", F.explode(prefixes).alias("bucket")).distinct()
    nodes = batch.state("silver.trie_nodes", wanted)
    if burned:
        whole = batch.spark.createDataFrame([(chain, bytearray(one)) for one in burned], "_chain string, token_id binary")
        nodes = nodes.unionByName(batch.state("silver.trie_nodes", whole))
    return nodes


def _ordered(tokens: DataFrame, nodes: DataFrame, events: DataFrame) -> DataFrame:
    """What is kept of each token, then its events, token after token."""
    names = [part.strip().split(" ")[0] for part in _split(token_rows.PARTS)]
    shape = F.lit(None)
    frames = [
        tokens.drop("_height").withColumn("part", F.lit(token_rows.TOKEN)),
        nodes.drop("_height").withColumn("part", F.lit(token_rows.NODE)),
        events.drop("created_height").withColumn("part", F.lit(token_rows.EVENT)),
    ]
    filled = [frame.select(*[F.col(n) if n in frame.columns else shape.alias(n) for n in names]) for frame in frames]
    whole = filled[0].unionByName(filled[1]).unionByName(filled[2])
    return whole.repartition("token_id").sortWithinPartitions("token_id", "part", "_height", "tx_index", "event_index")


def _split(ddl: str) -> list[str]:
    """The columns of a DDL text, without looking into nested ones."""
    found, depth = [""], 0
    for char in ddl:
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return found


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
    rows = found.filter("kind IS NULL").select(
        "_height",
        F.col("is_gone").alias("_deleted"),
        F.col("request_tx_id").alias("tx_id"),
        F.col("request_tx_index").alias("tx_index"),
        *REQUEST,
    )
    both = rows.groupBy("_height", *KEY).count().filter("count > 1")
    return rows.join(both, ["_height", *KEY], "left_anti")


def _of_tokens(folded: DataFrame) -> dict[str, DataFrame]:
    names = {"token": "silver.cage_tokens", "fact": "silver.trie_facts", "node": "silver.trie_nodes"}
    return {name: folded.filter(F.col("what") == what) for what, name in names.items()}


def _burned_facts(batch: Batch, chain: str, folded: DataFrame, burned: list[bytes]) -> DataFrame:
    """Facts of tokens that ended which the batch had not touched: gone with the token."""
    ends = folded.filter("what = 'burn'").groupBy("token_id").agg(F.min("_height").alias("_height"))
    whole = batch.spark.createDataFrame([(chain, bytearray(one)) for one in burned], "_chain string, token_id binary")
    kept = batch.state("silver.trie_facts", whole).select("token_id", "key", "value")
    touched = folded.filter("what = 'fact'").select("token_id", "key")
    gone = kept.join(touched, ["token_id", "key"], "left_anti").join(ends, "token_id")
    columns = [F.col(n) if n in gone.columns else F.lit(None).alias(n) for n in folded.columns if n != "_deleted"]
    return gone.select(*columns, F.lit(True).alias("_deleted"))
