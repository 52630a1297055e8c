"""Records what CometBFT asks a shard, and what it is answered: `python -m tests.conformance.record_abci FILE` makes a file of
tests/unit/recorded. `$COMETBFT` names the node. Transactions of all kinds go in, good and bad, with queries between them."""

import asyncio
import base64
import json
import sys
import tempfile
import threading
from pathlib import Path

from chainlake.abci.application import Application
from chainlake.abci.messages import Method
from chainlake.abci.server import AbciServer
from chainlake.shards.build import create_stream, update_placement
from chainlake.shards.machine import Shard
from tests.conformance.comet_process import CometProcess
from tests.unit.shards_making import NODES, REGISTRY, advanced, created, hash_of, space


class Recorder(AbciServer):
    """A server that writes down each question with its answer, in the order of the answers."""

    def __init__(self, application: Application) -> None:
        super().__init__(application)
        self.lines: list[dict[str, str]] = []

    async def _answered(self, data: bytes) -> tuple[Method | None, bytes]:
        method, answer = await super()._answered(data)
        if method is not Method.FLUSH:
            said = {"request": base64.b64encode(data).decode(), "response": base64.b64encode(answer).decode()}
            self.lines.append({"method": "" if method is None else method.name, **said})
        return method, answer


class RecordedNode(CometProcess):
    """A node whose application is in this process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, directory / "unused", directory / "unused")
        self.recorder = Recorder(Application(Shard(REGISTRY), snapshot_every=2))
        self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        """Answer in a thread of its own, and start the node."""
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self.recorder.start("127.0.0.1", self.abci_port), self._loop).result()
        self.start_node()


def talk(node: CometProcess) -> None:
    """A little of everything."""
    for sent in (
        created("a"),
        created("b", factor=2),
        advanced("a", 1),
        advanced("a", 9),
        create_stream(space("a"), hash_of("x"), NODES[:1], 1),
        update_placement(space("a"), NODES[2:4], 1),
        advanced("b", 1, sealed=True),
    ):
        node.send(sent)
    node.call("check_tx", tx="0xff")
    for path in (f"/stream/{space('a').hex()}", f"/stream/{space('z').hex()}", "/streams?limit=1", "/streams/count", "/nowhere"):
        node.call("abci_query", path=f"%22{path.replace('?', '%3F').replace('=', '%3D')}%22", prove="true")


def main(file: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = RecordedNode(Path(directory))
        try:
            node.serve()
            talk(node)
        finally:
            node.kill()
    Path(file).write_text("".join(json.dumps(line) + "\n" for line in node.recorder.lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
