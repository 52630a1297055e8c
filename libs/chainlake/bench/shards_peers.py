"""What the shards are measured beside: PostgreSQL with the same rules for miniblocks, and Go's sparse Merkle tree."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chainlake.bench.pg_cluster import cluster
from chainlake.bench.postgres import psycopg_driver
from chainlake.errors import Unavailable
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import MiniblockUpdate

TABLE = """
CREATE TABLE streams (
  stream_id bytea PRIMARY KEY, last_miniblock_hash bytea NOT NULL, last_miniblock_num bigint NOT NULL,
  replication_factor int NOT NULL, sealed boolean NOT NULL, nodes int[] NOT NULL
);
CREATE INDEX ON streams USING gin (nodes);
"""
EACH = """
UPDATE streams SET last_miniblock_hash = %s, last_miniblock_num = %s, sealed = sealed OR %s
WHERE stream_id = %s AND last_miniblock_hash = %s AND last_miniblock_num = %s - 1 AND NOT sealed
"""
SET_BASED = """
UPDATE streams s SET last_miniblock_hash = u.h, last_miniblock_num = u.n, sealed = s.sealed OR u.z
FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[], %s::bytea[], %s::boolean[]) AS u (id, p, n, h, z)
WHERE s.stream_id = u.id AND s.last_miniblock_hash = u.p AND s.last_miniblock_num = u.n - 1 AND NOT s.sealed
"""
GO_MODULE = "github.com/celestiaorg/smt v0.3.0"
GO_MAIN = """package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/celestiaorg/smt"
)

func key(n int) []byte {
	sum := sha256.Sum256([]byte(fmt.Sprintf("stream %d", n)))
	sum[0] = 0x20
	return sum[:]
}

func main() {
	streams, _ := strconv.Atoi(os.Args[1])
	updates, _ := strconv.Atoi(os.Args[2])
	tree := smt.NewSparseMerkleTree(smt.NewSimpleMap(), smt.NewSimpleMap(), sha256.New())
	for n := 0; n < streams; n++ {
		tree.Update(key(n), []byte("value"))
	}
	keys := make([][]byte, updates)
	for n := range keys {
		keys[n] = key(n * 7919 % streams)
	}
	started := time.Now()
	for n, k := range keys {
		tree.Update(k, []byte(strconv.Itoa(n)))
	}
	fmt.Println(time.Since(started).Seconds())
}
"""
BUILD_SECONDS = 300


class PostgresShard:
    """A server of its own with one table of streams, one transaction per block."""

    def __init__(self) -> None:
        psycopg = psycopg_driver()
        self._stack = ExitStack()
        socket = self._stack.enter_context(cluster())
        self._connection: Any = self._stack.enter_context(psycopg.connect(host=str(socket), user="bench", dbname="postgres"))
        self._connection.execute(TABLE)

    def load(self, streams: Iterable[StreamState]) -> None:
        """The streams before the first block; not timed."""
        with self._connection.cursor() as cursor, cursor.copy("COPY streams FROM STDIN") as copy:
            for one in streams:
                row = (one.stream_id, one.last_miniblock_hash, one.last_miniblock_num, one.replication_factor, one.sealed)
                copy.write_row((*row, list(one.nodes)))
        self._connection.commit()
        self._connection.autocommit = True
        self._connection.execute("VACUUM ANALYZE streams")
        self._connection.autocommit = False

    def each(self, blocks: Sequence[Sequence[MiniblockUpdate]]) -> float:
        """Seconds, with a round trip for every update."""
        started = time.monotonic()
        for block in blocks:
            with self._connection.cursor() as cursor:
                for u in block:
                    place = (u.stream_id, u.prev_miniblock_hash, u.last_miniblock_num)
                    cursor.execute(EACH, (u.last_miniblock_hash, u.last_miniblock_num, u.sealed, *place), prepare=True)
            self._connection.commit()
        return time.monotonic() - started

    def set_based(self, blocks: Sequence[Sequence[MiniblockUpdate]]) -> float:
        """Seconds, with one statement for every block."""
        started = time.monotonic()
        for block in blocks:
            names = ("stream_id", "prev_miniblock_hash", "last_miniblock_num", "last_miniblock_hash", "sealed")
            self._connection.execute(SET_BASED, [[getattr(u, name) for u in block] for name in names], prepare=True)
            self._connection.commit()
        return time.monotonic() - started

    def hashes(self) -> dict[bytes, bytes]:
        """The last miniblock of each stream, to compare with ours."""
        return {
            bytes(key): bytes(value)
            for key, value in self._connection.execute("SELECT stream_id, last_miniblock_hash FROM streams")
        }

    def close(self) -> None:
        """Stops the server and removes its directory."""
        self._stack.close()


def go_updates_per_second(streams: int, updates: int) -> float:
    """Updates a second of celestiaorg/smt on one core."""
    if not shutil.which("go"):
        raise Unavailable("Go is not installed: the tree of celestiaorg/smt cannot be measured beside ours")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "go.mod").write_text(f"module peer\n\ngo 1.21\n\nrequire {GO_MODULE}\n")
        (folder / "main.go").write_text(GO_MAIN)
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off", "CGO_ENABLED": "0"}
        try:
            subprocess.run(
                ["go", "build", "-o", "peer", "."],
                cwd=folder,
                env=environment,
                check=True,
                capture_output=True,
                timeout=BUILD_SECONDS,
            )
            done = subprocess.run([folder / "peer", str(streams), str(updates)], check=True, capture_output=True, text=True)
        except (subprocess.SubprocessError, OSError) as error:
            raise Unavailable(f"the Go tree could not be built or run: {error}"[:200]) from None
        return updates / float(done.stdout)
