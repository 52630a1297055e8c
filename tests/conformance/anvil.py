"""A real node for tests: anvil from the npm registry, with a contract that makes logs."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chainlake.errors import Unavailable
from chainlake.sources.endpoint import endpoint
from chainlake.sources.rpc_client import Limits, RpcClient, RpcFailure

PACKAGE = "@foundry-rs/anvil"
RUNTIME = bytes.fromhex(
    "366000600037"  # calldata to memory
    "6002600136" + "6000a2"  # log it with the topics 1 and 2
    "60006000a0"  # and an empty log without topics
    "00"
)
CREATE = bytes.fromhex(f"60{len(RUNTIME):02x}600c60003960{len(RUNTIME):02x}6000f3") + RUNTIME


def install(folder: Path) -> Path | str:
    """The anvil program, fetched into `folder`; or the reason why there is none."""
    if not shutil.which("npm"):
        return "npm is not installed"
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", PACKAGE]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "npm did not finish in 120 s"
    found = sorted(folder.glob("node_modules/@foundry-rs/anvil-*/bin/anvil*"))
    return found[0] if found else f"npm could not install {PACKAGE}: {(done.stderr or done.stdout).strip()[:200]}"


class Anvil:
    """A running anvil. Every transaction makes a block of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = RpcClient(endpoint(url, {}), Limits(retries=3))

    def call(self, method: str, *params: Any) -> Any:
        """The result of a call, which must succeed."""
        result = self._client.call(method, *params)
        assert not isinstance(result, RpcFailure), f"{method}: {result}"
        return result

    def deploy(self) -> str:
        """The address of a new contract that logs what it is sent."""
        return str(self._transact({"data": "0x" + CREATE.hex()})["contractAddress"])

    def log(self, contract: str, data: bytes) -> Any:
        """The receipt of a transaction that makes two logs."""
        return self._transact({"to": contract, "data": "0x" + data.hex()})

    def close(self) -> None:
        self._client.close()

    def _transact(self, transaction: dict[str, str]) -> Any:
        sender = self.call("eth_accounts")[0]
        name = self.call("eth_sendTransaction", {"from": sender, "gas": "0x100000", **transaction})
        for _ in range(100):
            if receipt := self.call("eth_getTransactionReceipt", name):
                return receipt
            time.sleep(0.1)
        raise AssertionError(f"anvil did not mine {name}")


@contextmanager
def running(program: Path, *options: str) -> Iterator[Anvil]:
    """Anvil on a free port, until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([str(program), "--port", str(port), "--silent", *options], stdin=subprocess.DEVNULL)
    anvil = Anvil(f"http://127.0.0.1:{port}")
    try:
        _wait_for(anvil)
        yield anvil
    finally:
        anvil.close()
        process.terminate()
        process.wait(10)


def _wait_for(anvil: Anvil) -> None:
    for _ in range(10):
        try:
            anvil.call("eth_chainId")
            return
        except Unavailable:
            time.sleep(0.5)
    raise AssertionError("anvil did not answer")
