"""The peer of sync: a service that keeps one row per stream in PostgreSQL, and works stream by stream."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from chainlake.bench.pg_cluster import cluster
from chainlake.bench.postgres import psycopg_driver
from chainlake.bench.sync_planning import AHEAD, GEN
from chainlake.cli.show import emit
from chainlake.errors import Unavailable
from chainlake.sync.client import Asking, ConnectClient
from chainlake.sync.fold import Known
from chainlake.sync.miniblock import Event, Miniblock
from chainlake.sync.rules import Delivery, Mark, State, advance

TABLES = """
CREATE TABLE stream_sync_state (
  stream_id bytea PRIMARY KEY,
  snapshot_miniblock bigint NOT NULL,
  minipool_gen bigint NOT NULL,
  prev_miniblock_hash bytea,
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE notifications (
  id bigserial PRIMARY KEY,
  stream_id bytea NOT NULL,
  miniblock_num bigint NOT NULL,
  event_index int NOT NULL,
  event_hash bytea NOT NULL,
  payload bytea NOT NULL,
  UNIQUE (stream_id, event_hash)
);
"""
STATE = (
    "INSERT INTO stream_sync_state (stream_id, snapshot_miniblock, minipool_gen, prev_miniblock_hash) VALUES (%s, %s, %s, %s)"
    " ON CONFLICT (stream_id) DO UPDATE SET snapshot_miniblock = excluded.snapshot_miniblock,"
    " minipool_gen = excluded.minipool_gen, prev_miniblock_hash = excluded.prev_miniblock_hash, updated_at = now()"
)
NOTE = (
    "INSERT INTO notifications (stream_id, miniblock_num, event_index, event_hash, payload) VALUES (%s, %s, %s, %s, %s)"
    " ON CONFLICT DO NOTHING"
)


PERSISTED = """
INSERT INTO stream_sync_state SELECT id, {gen} - 10, {gen}, id
FROM (SELECT decode(lpad(to_hex(n), 64, '0'), 'hex') AS id FROM generate_series(0, {streams} - 1) n) made;
CREATE TABLE answers AS
SELECT id AS stream_id, array_agg({gen} - 1 + ahead ORDER BY ahead) AS numbers,
  array_agg(set_byte(id, 0, ahead) ORDER BY ahead) AS hashes,
  array_agg(CASE ahead WHEN 0 THEN decode(repeat('00', 32), 'hex') ELSE set_byte(id, 0, ahead - 1) END ORDER BY ahead) AS before
FROM generate_series(0, {streams} - 1) n
CROSS JOIN LATERAL (SELECT decode(lpad(to_hex(n), 64, '0'), 'hex') AS id) made
CROSS JOIN LATERAL generate_series(0, CASE n % 10 WHEN 0 THEN {ahead} ELSE 0 END) ahead
GROUP BY id;
ANALYZE answers;
"""
RESTART = (
    "SELECT snapshot_miniblock, minipool_gen, prev_miniblock_hash, stream_id, numbers, hashes, before"
    " FROM stream_sync_state JOIN answers USING (stream_id)"
)


class SyncService:
    """The seed of such services: load the row, ask, skip or fetch the gap, insert, move the row, commit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.execute(TABLES)

    def plan(self, streams: int) -> float:
        """Seconds to read that many states with the answers of their nodes, and to apply the same rules to each."""
        self._connection.execute(PERSISTED.format(streams=streams, gen=GEN, ahead=AHEAD))
        began = time.monotonic()
        with self._connection.transaction(), self._connection.cursor(name="restart", binary=True) as cursor:
            cursor.itersize = 10_000
            cursor.execute(RESTART)
            for snapshot, gen, last, genesis, numbers, hashes, before in cursor:
                marks = tuple(Mark(place, *one) for place, one in enumerate(zip(numbers, hashes, before, strict=True)))
                advance(State(gen, last, snapshot, 0, genesis), Delivery(marks, live=True), Known())
        seconds = time.monotonic() - began
        self._connection.execute("DROP TABLE answers")
        self.forget()
        return seconds

    def follow(self, url: str, streams: Sequence[bytes]) -> float:
        """Seconds of one round over the streams."""
        client = ConnectClient([url], {}, Asking())
        began = time.monotonic()
        for stream_id in streams:
            self._follow_one(client, stream_id)
        return time.monotonic() - began

    def forget(self) -> int:
        """Start anew; how many notifications there were."""
        count: int = self._connection.execute("SELECT count(*) FROM notifications").fetchone()[0]
        self._connection.execute("TRUNCATE stream_sync_state, notifications")
        return count

    def _follow_one(self, client: ConnectClient, stream_id: bytes) -> None:
        with self._connection.transaction():
            found = self._connection.execute(
                "SELECT snapshot_miniblock, minipool_gen FROM stream_sync_state WHERE stream_id = %s", (stream_id,)
            ).fetchone()
            answer = client.get_stream(stream_id)
            own = [one.opened for one in answer.miniblocks[answer.snapshot_index if found is None else 0 :]]
            snapshot, gen = found or (own[0].number, own[0].number)
            if gen == answer.minipool_gen and not answer.minipool:
                return
            gap: list[Miniblock] = []
            while gen < own[0].number and (not gap or gap[-1].number + 1 < own[0].number):
                start = gap[-1].number + 1 if gap else gen
                gap += [one.opened for one in client.get_miniblocks(stream_id, start, own[0].number)]
            new = [block for block in [*gap, *own] if block.number >= gen]
            with self._connection.cursor() as cursor:
                for block in new:
                    cursor.executemany(NOTE, _rows(stream_id, block.number, block.events))
                cursor.executemany(NOTE, _rows(stream_id, answer.minipool_gen, answer.minipool))
                if new:
                    snapshot = max([snapshot, *(block.number for block in new if block.has_snapshot)])
                    cursor.execute(STATE, (stream_id, snapshot, new[-1].number + 1, new[-1].hash))


def _rows(stream_id: bytes, number: int, events: Sequence[Event]) -> list[tuple[Any, ...]]:
    return [(stream_id, number, index, event.hash, event.body) for index, event in enumerate(events)]


@contextmanager
def postgres() -> Iterator[SyncService | None]:
    """The peer on a server of its own; None, with a word about why, where there is no PostgreSQL."""
    with ExitStack() as stack:
        try:
            psycopg = psycopg_driver()
            socket = stack.enter_context(cluster())
        except Unavailable as error:
            emit(f"without PostgreSQL: {error}")
            yield None
            return
        connected = psycopg.connect(host=str(socket), user="bench", dbname="postgres", autocommit=True)
        yield SyncService(stack.enter_context(connected))
