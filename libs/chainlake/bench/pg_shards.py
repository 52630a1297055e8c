"""PostgreSQL with the rules of a metadata shard for miniblocks: one transaction per block, all checks against what was committed.

It is kept twice: with the last state of the streams alone, and with results of transactions and events beside it, as a shard has
them. Blocks are handed over as ready values, while ours come as files of a node.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

from chainlake.bench.pg_cluster import cluster
from chainlake.bench.postgres import psycopg_driver
from chainlake.shards.codes import Code
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import MiniblockUpdate

Transactions = Sequence[Sequence[MiniblockUpdate]]
"""The transactions of a block, each a batch of miniblocks."""

TABLES = """
CREATE TABLE streams (
  stream_id bytea PRIMARY KEY, last_miniblock_hash bytea NOT NULL, last_miniblock_num bigint NOT NULL,
  replication_factor int NOT NULL, sealed boolean NOT NULL, nodes int[] NOT NULL, updated_height bigint NOT NULL
);
CREATE INDEX ON streams USING gin (nodes);
CREATE TABLE results (height bigint, tx_index int, code int NOT NULL, PRIMARY KEY (height, tx_index));
CREATE TABLE events (
  height bigint, tx_index int, event_index int, stream_id bytea NOT NULL, n bigint NOT NULL, h bytea NOT NULL,
  sealed boolean NOT NULL, code int NOT NULL, PRIMARY KEY (height, tx_index, event_index)
);
"""
EACH = """
UPDATE streams SET last_miniblock_hash = %s, last_miniblock_num = %s, sealed = sealed OR %s, updated_height = %s
WHERE stream_id = %s AND last_miniblock_hash = %s AND last_miniblock_num = %s - 1 AND NOT sealed AND updated_height < %s
"""
STREAM = "SELECT updated_height, sealed, last_miniblock_hash FROM streams WHERE stream_id = %s"
SET_BASED = """
UPDATE streams s SET last_miniblock_hash = u.h, last_miniblock_num = u.n, sealed = s.sealed OR u.z, updated_height = %s
FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[], %s::bytea[], %s::boolean[]) AS u (id, p, n, h, z)
WHERE s.stream_id = u.id AND s.last_miniblock_hash = u.p AND s.last_miniblock_num = u.n - 1 AND NOT s.sealed
"""
SET_BASED_WITH_EVENTS = f"""
WITH given AS (
  SELECT * FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[], %s::bytea[], %s::boolean[], %s::int[], %s::int[])
  WITH ORDINALITY AS u (id, p, n, h, z, tx, place, number)
), judged AS (
  SELECT g.*, s.stream_id IS NOT NULL AS known, s.sealed AS was_sealed,
    s.last_miniblock_hash = g.p AS linked, s.last_miniblock_num = g.n - 1 AS next
  FROM given g LEFT JOIN streams s ON s.stream_id = g.id
), ruled AS (
  SELECT *, min(number) FILTER (WHERE linked AND next AND NOT was_sealed) OVER (PARTITION BY id) AS chosen FROM judged
), updated AS (
  UPDATE streams s SET last_miniblock_hash = r.h, last_miniblock_num = r.n, sealed = r.z, updated_height = %s
  FROM ruled r WHERE s.stream_id = r.id AND r.number = r.chosen
)
INSERT INTO events SELECT %s, tx, place, id, n, h, z, CASE
  WHEN NOT known THEN {Code.NOT_FOUND.value}
  WHEN number > chosen OR was_sealed THEN {Code.FAILED_PRECONDITION.value}
  WHEN NOT linked THEN {Code.BAD_PREV_MINIBLOCK_HASH.value}
  WHEN NOT next THEN {Code.BAD_BLOCK_NUMBER.value}
  ELSE {Code.OK.value} END
FROM ruled
"""
RESULTS = f"INSERT INTO results SELECT %s, place, {Code.OK.value} FROM generate_series(0, %s) AS place"
COPY_EVENTS = "COPY events FROM STDIN (FORMAT BINARY)"
EVENT_TYPES = ("int8", "int4", "int4", "bytea", "int8", "bytea", "bool", "int4")
FIELDS = ("stream_id", "prev_miniblock_hash", "last_miniblock_num", "last_miniblock_hash", "sealed")


class PostgresShard:
    """A server of its own with the tables of one shard."""

    def __init__(self) -> None:
        psycopg = psycopg_driver()
        with ExitStack() as stack:
            socket = stack.enter_context(cluster())
            self._connection: Any = stack.enter_context(psycopg.connect(host=str(socket), user="bench", dbname="postgres"))
            self._connection.execute(TABLES)
            self._close = stack.pop_all().close
        self._height = 0

    def load(self, streams: Iterable[StreamState]) -> None:
        """The streams before the first block; not timed."""
        with self._connection.cursor() as cursor, cursor.copy("COPY streams FROM STDIN") as copy:
            for one in streams:
                row = (one.stream_id, one.last_miniblock_hash, one.last_miniblock_num, one.replication_factor, one.sealed)
                copy.write_row((*row, list(one.nodes), 0))
        self._connection.commit()
        self._connection.autocommit = True
        self._connection.execute("VACUUM ANALYZE streams")
        self._connection.autocommit = False

    def each(self, blocks: Sequence[Transactions]) -> float:
        """Seconds, with a round trip for every miniblock. Only the last state is kept."""
        return self._timed(blocks, self._each)

    def each_with_events(self, blocks: Sequence[Transactions]) -> float:
        """The same, and one COPY of the events of a block."""
        return self._timed(blocks, self._each_with_events)

    def set_based(self, blocks: Sequence[Transactions]) -> float:
        """Seconds, with one statement for every block. Only the last state is kept, and no stream may be twice in a block."""
        return self._timed(blocks, self._set_based)

    def set_based_with_events(self, blocks: Sequence[Transactions]) -> float:
        """Seconds, with a statement for every block that judges all its miniblocks, and one for its results."""
        return self._timed(blocks, self._set_based_with_events)

    def hashes(self) -> dict[bytes, bytes]:
        """The last miniblock of each stream, to compare with ours."""
        return {
            bytes(key): bytes(value)
            for key, value in self._connection.execute("SELECT stream_id, last_miniblock_hash FROM streams")
        }

    def codes(self) -> list[tuple[int, int, int, int]]:
        """(height, transaction, place, code) of all events in order; heights count the blocks that were applied."""
        rows = self._connection.execute("SELECT height, tx_index, event_index, code FROM events ORDER BY 1, 2, 3")
        return [tuple(row) for row in rows]

    def close(self) -> None:
        """Stops the server and removes its directory."""
        self._close()

    def _timed(self, blocks: Sequence[Transactions], apply: Callable[[Transactions], None]) -> float:
        started = time.monotonic()
        for block in blocks:
            self._height += 1
            apply(block)
            self._connection.commit()
        return time.monotonic() - started

    def _each(self, block: Transactions) -> None:
        with self._connection.cursor() as cursor:
            for one in chain.from_iterable(block):
                self._update(cursor, one)

    def _each_with_events(self, block: Transactions) -> None:
        with self._connection.cursor() as cursor:
            codes = [[Code.OK if self._update(cursor, one) else self._reason(cursor, one) for one in batch] for batch in block]
            cursor.execute(RESULTS, (self._height, len(block) - 1))
            with cursor.copy(COPY_EVENTS) as copy:
                copy.set_types(EVENT_TYPES)
                for tx, place, one in _placed(block):
                    said = (one.stream_id, one.last_miniblock_num, one.last_miniblock_hash, one.sealed)
                    copy.write_row((self._height, tx, place, *said, codes[tx][place].value))

    def _set_based(self, block: Transactions) -> None:
        self._connection.execute(SET_BASED, (self._height, *_columns(block)), prepare=True)

    def _set_based_with_events(self, block: Transactions) -> None:
        transactions, places = zip(*((tx, place) for tx, place, _ in _placed(block)), strict=True)
        given = (*_columns(block), list(transactions), list(places), self._height, self._height)
        self._connection.execute(SET_BASED_WITH_EVENTS, given, prepare=True)
        self._connection.execute(RESULTS, (self._height, len(block) - 1))

    def _update(self, cursor: Any, one: MiniblockUpdate) -> bool:
        """Whether the miniblock was taken."""
        place = (one.stream_id, one.prev_miniblock_hash, one.last_miniblock_num, self._height)
        cursor.execute(EACH, (one.last_miniblock_hash, one.last_miniblock_num, one.sealed, self._height, *place), prepare=True)
        return bool(cursor.rowcount)

    def _reason(self, cursor: Any, one: MiniblockUpdate) -> Code:
        """Why a miniblock was not taken."""
        row = cursor.execute(STREAM, (one.stream_id,), prepare=True).fetchone()
        if row is None:
            return Code.NOT_FOUND
        updated, sealed, last = row
        if updated == self._height or sealed:
            return Code.FAILED_PRECONDITION
        return Code.BAD_BLOCK_NUMBER if last == one.prev_miniblock_hash else Code.BAD_PREV_MINIBLOCK_HASH


def _columns(block: Transactions) -> list[list[Any]]:
    return [[getattr(one, name) for one in chain.from_iterable(block)] for name in FIELDS]


def _placed(block: Transactions) -> Iterator[tuple[int, int, MiniblockUpdate]]:
    """Miniblocks with the places of their transaction and within it."""
    for tx, batch in enumerate(block):
        for place, one in enumerate(batch):
            yield tx, place, one
