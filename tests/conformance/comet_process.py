"""A real CometBFT node with `lake abci` behind it, as two processes that can be killed."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

COMETBFT = os.environ.get("COMETBFT") or shutil.which("cometbft") or str(Path.home() / "go" / "bin" / "cometbft")
SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class CometProcess:
    """A chain of one validator, and the application that it asks."""

    def __init__(self, directory: Path, registry: Path, home: Path, chain: str = "shard") -> None:
        self.directory, self.registry, self.home, self.chain = directory, registry, home, chain
        self.rpc = f"http://127.0.0.1:{free_port()}"
        self.abci_port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._run([COMETBFT, "init", "--home", str(directory / "comet")])

    def start(self, *options: str) -> None:
        """Both processes; returns when the node answers."""
        lake = [sys.executable, "-m", "chainlake.cli.main", "abci", "--chain", self.chain, "--home", str(self.home), *options]
        self._spawn([*lake, "--registry", str(self.registry), "--listen", f"127.0.0.1:{self.abci_port}"], "abci.log")
        self.start_node()

    def joins(self, other: "CometProcess", trusted: int) -> None:
        """Have the node begin with a snapshot of another one's chain, by the hash of a block that is trusted."""
        home, theirs = self.directory / "comet" / "config", other.directory / "comet" / "config"
        shutil.copy(theirs / "genesis.json", home / "genesis.json")
        info, block = other.call("status")["node_info"], other.call("block", height=str(trusted))
        wanted = {
            "persistent_peers": f"{info['id']}@{info['listen_addr'].removeprefix('tcp://')}",
            "rpc_servers": f"{other.rpc},{other.rpc}",
            "trust_hash": block["block_id"]["hash"],
            "discovery_time": "5s",
        }
        config = (home / "config.toml").read_text()
        for name, value in wanted.items():
            config = re.sub(rf'(?m)^{name} = ".*"$', f'{name} = "{value}"', config)
        config = re.sub(r"(?m)^trust_height = 0$", f"trust_height = {trusted}", config)
        config = re.sub(r"(\[statesync\][^\[]*?\nenable = )false", r"\1true", config)
        (home / "config.toml").write_text(config)

    def start_node(self) -> None:
        """The node alone; returns when it answers."""
        self._spawn(
            [
                *(COMETBFT, "start", "--home", str(self.directory / "comet")),
                *("--proxy_app", f"tcp://127.0.0.1:{self.abci_port}", "--rpc.laddr", self.rpc.replace("http", "tcp")),
                *("--p2p.laddr", f"tcp://127.0.0.1:{free_port()}", "--consensus.create_empty_blocks=false"),
                *("--p2p.pex=false", "--log_level=info"),
            ],
            "comet.log",
        )
        self.wait(lambda: self.call("status") is not None)

    def kill(self) -> None:
        """SIGKILL to both: nothing is closed properly."""
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes = []

    def send(self, transaction: bytes) -> dict[str, Any]:
        """Broadcast, and wait until the transaction is in a block."""
        found: dict[str, Any] = self.call("broadcast_tx_commit", tx="0x" + transaction.hex())
        return found

    def call(self, method: str, **params: str) -> Any:
        """The result of a call; None while the node does not answer."""
        query = "&".join(f"{name}={value}" for name, value in params.items())
        try:
            with urllib.request.urlopen(f"{self.rpc}/{method}?{query}", timeout=SECONDS) as answer:
                return json.load(answer)["result"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def wait(self, done: Any) -> None:
        """Until something is so."""
        until = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < until, self.logs()
            assert all(process.poll() is None for process in self._processes), self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.directory.glob("*.log")))

    def _spawn(self, command: list[str], log: str) -> None:
        with open(self.directory / log, "ab") as out:
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=_environment()))

    def _run(self, command: list[str]) -> None:
        subprocess.run(command, check=True, capture_output=True, env=_environment())


def _environment() -> dict[str, str]:
    import chainlake

    return {**os.environ, "PYTHONPATH": str(Path(chainlake.__file__).parents[1])}
