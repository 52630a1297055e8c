"""Writing one commit: append to all tables in parallel, then let the ledger decide."""

import json
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from chainlake.errors import BadInput, BrokenPromise, some_of
from chainlake.lake.control import is_conflict
from chainlake.lake.ddl import Table
from chainlake.lake.failpoint import failpoint
from chainlake.lake.names import physical

if TYPE_CHECKING:
    from chainlake.lake.catalog import Catalog

ATTEMPTS = 3
MOST_RANGES = 64


@dataclass(frozen=True)
class Appended:
    """What one append wrote."""

    version: int
    rows: int
    bytes: int
    checksum: int
    retries: int


def checksum(table: Table, present: Collection[str] | None = None) -> Column:
    """An order-free checksum of rows as stored, without the commit that wrote them. Columns that came later are NULL in older
    rows, and NULL does not change it; so they may also be missing (not be `present`)."""
    stored = [column for column in table.stored if column.name != "_commit" and (present is None or column.name in present)]
    columns = [_hashable(column.name, column.type) for column in stored]
    return F.coalesce(F.bit_xor(F.xxhash64(*columns)), F.lit(0).cast("bigint"))


def append_all(
    catalog: "Catalog", frames: Mapping[str, DataFrame | None], commit_id: int, ranges: Mapping[str, tuple[int, int]]
) -> dict[str, Appended]:
    """Append every frame to its table. Nothing of it is visible until the ledger has the commit."""
    failpoint("before_appends")

    def one(item: tuple[str, DataFrame | None]) -> Appended:
        name, frame = item
        stored = physical(name)
        if frame is None:
            return Appended(catalog.log(stored).latest(), 0, 0, 0, 0)
        done = append(catalog, catalog.table(name), stored, frame, commit_id, ranges)
        failpoint("after_append")
        failpoint(f"after_append_{stored}")
        return done

    with ThreadPoolExecutor(max(1, len(frames))) as pool:
        results = list(pool.map(one, frames.items()))
    failpoint("after_appends")
    return {physical(name): result for name, result in zip(frames, results, strict=True)}


def append(
    catalog: "Catalog", table: Table, stored: str, frame: DataFrame, commit_id: int, ranges: Mapping[str, tuple[int, int]]
) -> Appended:
    """One append to one physical table. Tried again only where Delta refused it: after other errors it may have been written."""
    log = catalog.log(stored)
    ready = prepared(table, frame, commit_id)
    place = F.concat_ws(" at height ", "_chain", F.col("_height").cast("string"))
    for attempt in range(ATTEMPTS):
        seen = Observation()
        observed = ready.observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.max(F.when(~_in_place(ranges), place)).alias("misplaced"),
            checksum(table).alias("checksum"),
        )
        try:
            (
                observed.write.format("delta")
                .mode("append")
                .option("userMetadata", json.dumps({"commit": commit_id}))
                .saveAsTable(catalog.full_name(stored))
            )
        except PySparkException as error:
            if attempt + 1 == ATTEMPTS or not is_conflict(error):
                raise
            time.sleep(0.2 * (attempt + 1))
            continue
        found = seen.get
        if not found["rows"]:
            return Appended(log.latest(), 0, 0, 0, attempt)  # Delta may make no version of nothing
        version = log.version_of("commit", commit_id)
        if version is None:
            raise BrokenPromise(f"{stored}: the append of commit {commit_id} is not in the table's history")
        if found["misplaced"] is not None:
            held = some_of(f"{chain} from {low + 1} to {high}" for chain, (low, high) in ranges.items())
            raise BrokenPromise(f"{stored}: a row of {found['misplaced']} in a batch of {held}; fix the stage")
        return Appended(version.version, found["rows"], version.bytes, found["checksum"], attempt)
    raise AssertionError("unreachable")


def prepared(table: Table, frame: DataFrame, commit_id: int) -> DataFrame:
    """The frame with exactly the columns that the table stores, the commit among them."""
    given = set(frame.columns)
    columns = []
    for column in table.stored:
        if column.name == "_commit":
            columns.append(F.lit(commit_id).cast("bigint").alias("_commit"))
        elif column.name == "_deleted" and "_deleted" not in given:
            columns.append(F.lit(False).alias("_deleted"))
        elif column.name not in given:
            raise BadInput(f"the stage's frame for {table.name} has no column {column.name}: it has {sorted(given)}")
        else:
            columns.append(F.col(column.name).cast(column.type).alias(column.name))
    return frame.select(*columns)


def _in_place(ranges: Mapping[str, tuple[int, int]]) -> Column:
    """A row belongs to a chain and height of its batch. Of chains with very many different ranges: to a chain, and a height of
    any, since each row would be compared with all of them."""
    chains: dict[tuple[int, int], list[str]] = {}
    for chain, heights in ranges.items():
        chains.setdefault(heights, []).append(chain)
    if len(chains) > MOST_RANGES:
        chains = {(min(low for low, _ in chains), max(high for _, high in chains)): list(ranges)}
    places = [
        F.col("_chain").isin(of) & (F.col("_height") > low) & (F.col("_height") <= high) for (low, high), of in chains.items()
    ]
    return reduce(or_, places)


def _hashable(name: str, declared: str) -> Column:
    """Maps cannot be hashed; their JSON can. NULL stays NULL, so that a column added later changes no checksum."""
    if "map<" not in declared.lower():
        return F.col(name)
    return F.when(F.col(name).isNotNull(), F.to_json(F.struct(name)))
