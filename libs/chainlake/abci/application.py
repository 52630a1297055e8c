"""A metadata shard as an ABCI application: the rules of `shards` behind CometBFT's questions.

The state is in memory. It starts as the lake has it, and CometBFT replays the blocks above; nothing else is kept, so there is
nothing that could contradict the lake after a crash. FinalizeBlock prepares a block, Commit makes it count.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qsl

from chainlake import __version__
from chainlake.abci.messages import (
    ACCEPT,
    REJECT,
    Method,
    data_field,
    repeated,
    text_field,
    tx_result,
)
from chainlake.abci.state_sync import StateSync
from chainlake.errors import BadInput, LakeError
from chainlake.shards.checks import check_tx, prepare_proposal, process_proposal
from chainlake.shards.codes import CODESPACE, Code, Refused
from chainlake.shards.machine import Shard
from chainlake.shards.query import View, answer, read_stream_id
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import StreamState
from chainlake.sources.wire import field_bytes, field_int, message, messages, number

APP_VERSION = 1
PROOF_TYPE = "ics23:smt"


class MemoryView:
    """The committed streams of a shard, for `shards.query`. They are put in order once per block that somebody lists them in."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._listed: tuple[int | None, list[StreamState]] = (None, [])

    @property
    def registry(self) -> NodeRegistry:
        return self._shard.registry

    def stream(self, stream_id: bytes) -> StreamState | None:
        return self._shard.streams.get(stream_id)

    def streams(self) -> Sequence[StreamState]:
        if self._listed[0] != self._shard.height:
            found = sorted(self._shard.streams.values(), key=lambda one: one.stream_id)
            self._listed = self._shard.height, found
        return self._listed[1]

    def count(self) -> int:
        return len(self._shard.streams)


class Application:
    """Answers the methods of ABCI. One call at a time, but for what is `apart`: the server sees to it."""

    def __init__(
        self, shard: Shard, past: Callable[[int], View] | None = None, snapshot_every: int = 0, chain_id: str = ""
    ) -> None:
        """`past` gives the streams after an earlier block, which the lake knows."""
        self.shard = shard
        self._head = MemoryView(shard)
        self._past = past
        self._sync = StateSync(snapshot_every, chain_id)
        self._methods: Mapping[Method, Callable[[bytes], bytes]] = {
            Method.ECHO: lambda request: data_field(1, message(request, 1)),
            Method.FLUSH: lambda request: b"",
            Method.INFO: self._info,
            Method.INIT_CHAIN: self._init_chain,
            Method.QUERY: self._query,
            Method.CHECK_TX: self._check_tx,
            Method.COMMIT: self._commit,
            Method.LIST_SNAPSHOTS: lambda request: self._sync.listed(),
            Method.OFFER_SNAPSHOT: self._sync.offered,
            Method.LOAD_SNAPSHOT_CHUNK: self._sync.loaded,
            Method.APPLY_SNAPSHOT_CHUNK: self._apply_chunk,
            Method.PREPARE_PROPOSAL: self._prepare_proposal,
            Method.PROCESS_PROPOSAL: self._process_proposal,
            Method.EXTEND_VOTE: lambda request: b"",
            Method.VERIFY_VOTE_EXTENSION: lambda request: field_int(1, ACCEPT),
            Method.FINALIZE_BLOCK: self._finalize_block,
        }

    def answer(self, method: Method, request: bytes) -> bytes:
        """The answer's message."""
        return self._methods[method](request)

    def apart(self, method: Method, request: bytes) -> Callable[[], bytes] | None:
        """What answers a query about an earlier block; None for all else. It reads files of the lake, which may take long, and
        nothing that blocks change, so these need not wait for it."""
        past = self._past
        if method != Method.QUERY or past is None or self._is_head(request):
            return None
        return lambda: self._query(request, past)

    def _info(self, request: bytes) -> bytes:
        version = text_field(1, "chainlake shard") + text_field(2, __version__) + field_int(3, APP_VERSION)
        return version + field_int(4, self.shard.height or 0) + data_field(5, self.shard.app_hash)

    def _init_chain(self, request: bytes) -> bytes:
        """A new chain: the state that the lake may hold stays. The first block may have any height."""
        self._sync.chain_id = message(request, 2).decode()
        return data_field(3, self.shard.app_hash)

    def _check_tx(self, request: bytes) -> bytes:
        try:
            check_tx(message(request, 1))
        except Refused as refused:
            return field_int(1, refused.code) + text_field(3, refused.message) + text_field(8, CODESPACE)
        return text_field(8, CODESPACE)

    def _prepare_proposal(self, request: bytes) -> bytes:
        return repeated(1, prepare_proposal(messages(request, 2), number(request, 1)))

    def _process_proposal(self, request: bytes) -> bytes:
        return field_int(1, ACCEPT if process_proposal(messages(request, 1)) else REJECT)

    def _finalize_block(self, request: bytes) -> bytes:
        done = self.shard.finalize(number(request, 5), messages(request, 1))
        return repeated(2, map(tx_result, done.block.results)) + data_field(5, done.app_hash)

    def _commit(self, request: bytes) -> bytes:
        self.shard.commit()
        self._sync.committed(self.shard)
        return b""

    def _apply_chunk(self, request: bytes) -> bytes:
        body, restored = self._sync.applied(request, self.shard.registry)
        if restored is not None:
            self.shard, self._head = restored, MemoryView(restored)
        return body

    def _query(self, request: bytes, past: Callable[[int], View] | None = None) -> bytes:
        """Queries come from anybody and change nothing: whatever is wrong with one, or with the files that it reads, is its own
        answer and no reason to end the validator."""
        try:
            return self._found(request, past)
        except Refused as refused:
            return _not_found(refused.code, refused.message)
        except BadInput as error:
            return _not_found(Code.INVALID_ARGUMENT, str(error))
        except Exception as error:
            return _not_found(Code.INTERNAL, str(error) if isinstance(error, LakeError) else f"{type(error).__name__}: {error}")

    def _found(self, request: bytes, past: Callable[[int], View] | None) -> bytes:
        """A query by path. `/stream` alone takes the id from the request's data; `prove` adds an ICS-23 proof at the head. With
        `past`, nothing but the lake is looked at."""
        path, _, query = message(request, 2).decode(errors="replace").partition("?")
        data, height = message(request, 1), number(request, 3)
        if path.strip("/") == "stream":
            path = f"/stream/{data.hex()}"
        view = self._view(height) if past is None else past(height)
        value = answer(view, path, dict(reversed(parse_qsl(query))))
        body = data_field(7, json.dumps(value, separators=(",", ":")).encode()) + text_field(10, CODESPACE)
        body += field_int(9, height or self.shard.height or 0)
        wanted = path.strip("/").split("/")
        if number(request, 4) and wanted[0] == "stream" and view is self._head:
            key = read_stream_id(wanted[1])
            proof = text_field(1, PROOF_TYPE) + data_field(2, key) + data_field(3, self.shard.prove(key).to_bytes())
            body += data_field(6, key) + field_bytes(8, field_bytes(1, proof))
        return body

    def _is_head(self, request: bytes) -> bool:
        try:
            return number(request, 3) in (0, self.shard.height)
        except BadInput:
            return True  # whoever answers it will say what is wrong with it

    def _view(self, height: int) -> View:
        if height in (0, self.shard.height):
            return self._head
        if self._past is None:
            raise Refused(Code.INVALID_ARGUMENT, "only the last block can be asked for: start with a lake that has this chain")
        return self._past(height)


def _not_found(code: Code, text: str) -> bytes:
    return field_int(1, code) + text_field(3, text) + text_field(10, CODESPACE)
