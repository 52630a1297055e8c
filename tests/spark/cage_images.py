"""What a batch of the cage's gold stage reads, of many chains at once, made from a plain replay."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.unit.cage_replay import Replay

KERNEL = "_chain string, _height bigint, _deleted boolean"
STATE = "owner binary, root binary, max_fee bigint, process_time bigint, retract_time bigint"
COLUMNS = {
    "silver.cage_tokens": f"{KERNEL}, token_id binary, {STATE}, created_height bigint, updated_height bigint, tracked boolean",
    "silver.trie_facts": f"{KERNEL}, token_id binary, key binary, value binary",
    "silver.cage_requests": f"{KERNEL}, tx_id binary, tx_index int, token_id binary, owner binary, key binary, old_value binary,"
    " new_value binary, fee bigint, submitted_at bigint, operation string, created_height bigint",
}
Rows = dict[tuple[Any, ...], tuple[Any, ...]]


class Images:
    """Stands in for a batch: of each chain the rows of the blocks above `low`, and the state there."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._read: dict[str, list[tuple[Any, ...]]] = {table: [] for table in COLUMNS}
        self._state: dict[str, list[tuple[Any, ...]]] = {table: [] for table in COLUMNS}

    def add(self, chain: str, history: list[tuple[Replay, Any]], low: int) -> None:
        """The after-images of a chain: what a block changed, and with their last values what it removed."""
        for table in COLUMNS:
            before = rows_of(table, history[low][0])
            self._state[table] += [(chain, low, False, *key, *row) for key, row in before.items()]
            for height in range(low + 1, len(history)):
                now = rows_of(table, history[height][0])
                gone = {key: row for key, row in before.items() if key not in now}
                self._read[table] += [(chain, height, True, *key, *row) for key, row in gone.items()]
                new = {key: row for key, row in now.items() if before.get(key) != row}
                self._read[table] += [(chain, height, False, *key, *row) for key, row in new.items()]
                before = now

    def rows(self, table: str) -> int:
        return len(self._read[table])

    def read(self, table: str) -> DataFrame:
        return self._spark.createDataFrame(self._read[table], COLUMNS[table])

    def state(self, table: str, keys: DataFrame) -> DataFrame:
        return self._spark.createDataFrame(self._state[table], COLUMNS[table])


def rows_of(table: str, state: Replay) -> Rows:
    """The rows of a table after a block, by their keys."""
    if table == "silver.cage_tokens":
        return {(t,): (*k.state, k.created_height, k.updated_height, k.tracked) for t, k in state.tokens.items()}
    if table == "silver.trie_facts":
        return {(token, key): (value,) for token, own in state.facts.items() for key, value in own.items()}
    return {(*place,): (*one, one.operation, state.created[place]) for place, one in state.requests.items()}
