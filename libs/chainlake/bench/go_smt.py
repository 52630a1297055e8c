"""What state roots of shards are measured beside: Go's sparse Merkle tree."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from chainlake.errors import Unavailable

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
