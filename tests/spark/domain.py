"""A small domain for testing the kernel: blocks, payments, balances, chunks. What a block holds is a pure function of the chain's
branch and its height, so that a test can say in plain Python what every table must show at every height."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from chainlake.lake import Batch, Lake, Output, Stage
from chainlake.lake.chains import Chain
from chainlake.lake.runner import LaneRun, Timings

TABLES = Path(__file__).parent / "tables"
ACCOUNTS = 11
PAYMENTS = 3


def salt(branches: str, height: int) -> int:
    """The number that a block's payments are made from. `branches` is like `0:1,50:2`: salt 1 from 0 on, 2 from 50 on."""
    parts = [part.split(":") for part in branches.split(",")]
    return max((int(start), int(number)) for start, number in parts if int(start) <= height)[1]


def block_hash(branches: str, height: int) -> bytes:
    seen = ",".join(part for part in branches.split(",") if int(part.split(":")[0]) <= height)
    return hashlib.sha256(f"{seen}/{height}".encode()).digest()


def payments(branches: str, height: int) -> list[tuple[str, int]]:
    number = salt(branches, height)
    return [
        (f"a{(height * 5 + k * 3 + number) % ACCOUNTS}", (height * 31 + k * 17 + number * 7) % 50 + 1) for k in range(PAYMENTS)
    ]


def expected_balances(branches: str, height: int, first: int = 1) -> dict[str, int]:
    """The state after a height. An account that is paid in a block with (height + its number) divisible by 7 is deleted."""
    balances: dict[str, int] = {}
    for h in range(first, height + 1):
        paid = payments(branches, h)
        for account, amount in paid:
            balances[account] = balances.get(account, 0) + amount
        for account in {account for account, _ in paid}:
            if (h + int(account[1:])) % 7 == 0:
                del balances[account]
    return balances


def expected_total(branches: str, height: int) -> int:
    return sum(amount for h in range(1, height + 1) for _, amount in payments(branches, h))


class BlocksRun(LaneRun):
    """A source that makes blocks up to the height in the chain's options, on the branches in them."""

    def step(self) -> bool:
        (chain,) = self.active() or (None,)
        if chain is None:
            return False
        options = self.lake.chain(chain).options
        head = self.head(chain)
        low = head.height if head else 0
        high = min(int(options["to"]), low + self.max_blocks)
        if high <= low:
            return False
        rows = [(chain, h, block_hash(options["branches"], h), salt(options["branches"], h)) for h in range(low + 1, high + 1)]
        frame = self.lake.spark.createDataFrame(rows, "_chain string, _height long, hash binary, salt long").coalesce(1)
        hashes = {chain: block_hash(options["branches"], high)}
        self.write({chain: (low, high)}, Output({"raw.test_blocks": frame}), hashes, Timings())
        return True


def bronze(batch: Batch) -> Output:
    k = F.explode(F.sequence(F.lit(0), F.lit(PAYMENTS - 1))).alias("tx_index")
    rows = batch.read("raw.test_blocks").select("_chain", "_height", "salt", k)
    rows = rows.withColumn("account", F.expr(f"concat('a', (_height * 5 + tx_index * 3 + salt) % {ACCOUNTS})"))
    rows = rows.withColumn("amount", F.expr("(_height * 31 + tx_index * 17 + salt * 7) % 50 + 1"))
    return Output({"bronze.test_payments": rows.coalesce(1)})


def silver(batch: Batch) -> Output:
    paid = batch.keep(batch.read("bronze.test_payments"))
    before = batch.state("silver.test_balances", paid.select("_chain", "account")).select("_chain", "account", "balance")
    return Output(
        {"silver.test_balances": _balances(paid, before), "silver.test_totals": _totals(batch, paid)},
        {chain: {"heights": str(high).encode()} for chain, (_, high) in batch.ranges.items()},
    )


def _balances(paid: DataFrame, before: DataFrame) -> DataFrame:
    """Running sums that start again after each deletion."""
    own = Window.partitionBy("_chain", "account").orderBy("_height")
    rows = paid.groupBy("_chain", "account", "_height").agg(F.sum("amount").alias("net"))
    rows = rows.withColumn("_deleted", F.expr("(_height + cast(substring(account, 2) AS bigint)) % 7 = 0"))
    earlier = F.sum(F.col("_deleted").cast("int")).over(own.rowsBetween(Window.unboundedPreceding, -1))
    rows = rows.withColumn("life", F.coalesce(earlier, F.lit(0))).join(before, ["_chain", "account"], "left")
    life = Window.partitionBy("_chain", "account", "life").orderBy("_height")
    carried = F.when(F.col("life") == 0, F.coalesce("balance", F.lit(0))).otherwise(0)
    return rows.select("_chain", "account", "_height", "_deleted", (carried + F.sum("net").over(life)).alias("balance"))


def _totals(batch: Batch, paid: DataFrame) -> DataFrame:
    before = batch.snapshot.between("silver.test_totals", {c: (low - 1, low) for c, (low, _) in batch.ranges.items()})
    before = before.select("_chain", F.col("total").alias("carried"))
    per_block = paid.groupBy("_chain", "_height").agg(F.sum("amount").alias("amount")).join(before, "_chain", "left")
    running = Window.partitionBy("_chain").orderBy("_height")
    return per_block.select(
        "_chain",
        "_height",
        (F.coalesce("carried", F.lit(0)) + F.sum("amount").over(running)).alias("total"),
        F.create_map(F.lit("k"), F.col("_chain")).alias("notes"),
    ).coalesce(1)


def gold(batch: Batch) -> Output:
    rows = (
        batch.read("bronze.test_payments")
        .groupBy("_chain")
        .agg(F.max("_height").alias("_height"), F.min("_height").alias("first_height"), F.sum("amount").alias("amount"))
    )
    return Output({"gold.test_chunks": rows})


def test_stages(lane: str | None = None) -> tuple[Stage, ...]:
    """The stages; with `lane`, the derived ones advance all chains together."""
    lanes = {"lane_of": lambda _: lane} if lane else {}
    return (
        Stage("raw.test", "test", ("raw.test_blocks",), runner=BlocksRun),
        Stage("bronze.test", "test", ("bronze.test_payments",), ("raw.test",), bronze, **lanes),
        Stage("silver.test", "test", ("silver.test_balances", "silver.test_totals"), ("bronze.test",), silver, **lanes),
        Stage("gold.test", "test", ("gold.test_chunks",), ("bronze.test",), gold, **lanes),
    )


test_stages.__test__ = False  # type: ignore[attr-defined]
STAGES = ("raw.test", "bronze.test", "silver.test", "gold.test")


def extend(lake: Lake, chain: str, to: int, branches: str = "0:1", **more: str) -> None:
    """Say how far the chain goes, and on which branches."""
    lake.chains.add(Chain(chain, "test", "made up", {"to": str(to), "branches": branches, **more}))


def run_all(lake: Lake, chain: str = "", max_blocks: int = 1000, stages: tuple[str, ...] = STAGES) -> None:
    """Run the stages over one chain, or over all that the lake knows."""
    for stage in stages:
        lake.run_stage(stage, chains=chain, max_blocks=max_blocks)


def balances(lake: Lake, chain: str, **when: object) -> Mapping[str, int]:
    rows = lake.table("silver.test_balances", chain=chain, **when).collect()  # type: ignore[arg-type]
    found = {row["account"]: row["balance"] for row in rows}
    assert len(found) == len(rows), "an account twice"
    return found


def total(lake: Lake, chain: str, **when: object) -> tuple[int, int]:
    """(rows, last total) of silver.test_totals."""
    rows = lake.table("silver.test_totals", chain=chain, **when).select("height", "total").collect()  # type: ignore[arg-type]
    return len(rows), max(rows)[1] if rows else 0
