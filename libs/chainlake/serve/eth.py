"""The methods that Ethereum clients call: chain, blocks and logs."""

import json
import platform
from typing import Any

from chainlake import __version__
from chainlake.logs.filter import Criteria
from chainlake.logs.rpc_values import BlockId, read_block, read_flag, read_hash
from chainlake.serve.engine import Block, Snapshot
from chainlake.serve.log_json import logs_to_json
from chainlake.serve.methods import Method, Note, Raw
from chainlake.serve.queries import Queries

UNSTATED = {"difficulty": "0x0", "extraData": "0x", "uncles": [], "transactions": []}
"""What clients insist on in a block, for sources that leave it out."""


class EthMethods:
    """eth_, net_ and web3_ methods without state."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._engine = queries.engine
        self._chain_id = queries.settings.chain_id

    def methods(self) -> list[Method]:
        return [
            Method("eth_chainId", self._chain_id_hex, blocking=False),
            Method("net_version", self._network, blocking=False),
            Method("web3_clientVersion", self._version, blocking=False),
            Method("eth_syncing", self._syncing, blocking=False),
            Method("eth_blockNumber", self._block_number),
            Method("eth_getBlockByNumber", self._block_by_number, (read_block, read_flag)),
            Method("eth_getBlockByHash", self._block_by_hash, (read_hash, read_flag)),
            Method("eth_getLogs", self._logs, (self._queries.read_criteria,)),
            Method("lake_explain", self._explain, (self._queries.read_criteria,)),
        ]

    def _chain_id_hex(self, note: Note) -> str:
        return hex(self._chain_id)

    def _network(self, note: Note) -> str:
        return str(self._chain_id)

    def _version(self, note: Note) -> str:
        return f"chainlake/v{__version__}/{platform.system().lower()}-{platform.machine()}/python{platform.python_version()}"

    def _syncing(self, note: Note) -> bool:
        """Only final blocks are served, and those that are there are complete."""
        return False

    def _block_number(self, note: Note) -> str:
        return hex(self._queries.snapshot().head.number)

    def _logs(self, note: Note, criteria: Criteria) -> Raw:
        logs = self._queries.all_logs(note, criteria)
        return Raw(b"[]" if logs is None else logs_to_json(logs))

    def _explain(self, note: Note, criteria: Criteria) -> Any:
        """The plan of a query and what it took, without the logs."""
        snapshot = self._queries.snapshot()
        wanted = self._queries.resolve(snapshot, criteria)
        head = snapshot.head.to_json()
        if wanted.empty_range:
            return {"head": head, "logs": 0, "more": False, "plan": {}}
        found = self._queries.find(note, snapshot, wanted, self._queries.settings.max_results)
        return {"head": head, "logs": found.logs.num_rows, "more": found.more, "plan": found.plan()}

    def _block_by_number(self, note: Note, block: BlockId, full: bool) -> Any:
        snapshot = self._queries.snapshot()
        if block == "pending":
            return None
        number = block if isinstance(block, int) else snapshot.first if block == "earliest" else snapshot.head.number
        return self._block(snapshot, self._engine.block_by_number(snapshot, number), full)

    def _block_by_hash(self, note: Note, block_hash: bytes, full: bool) -> Any:
        snapshot = self._queries.snapshot()
        return self._block(snapshot, self._engine.block_by_hash(snapshot, block_hash), full)

    def _block(self, snapshot: Snapshot, block: Block | None, full: bool) -> Any:
        if block is None:
            return None
        payload = self._engine.payload(snapshot, block.number)
        stated = json.loads(payload) if payload else {}
        found = {**UNSTATED, **block.to_json(), **{name: value for name, value in stated.items() if value is not None}}
        if not full:
            found["transactions"] = [one["hash"] if isinstance(one, dict) else one for one in found["transactions"]]
        return found
