"""Snapshots between validators: what the last ones were, and one that is being put together from the chunks of others."""

from collections import OrderedDict

from chainlake.abci.messages import Applied, Offer, data_field, repeated
from chainlake.errors import BadInput, CheckFailed, LakeError
from chainlake.shards.machine import Shard
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.snapshot import FORMAT, Header, check_chunk, make, parse_header, registered, restore
from chainlake.sources.wire import field_int, message, number, to_varint

KEPT = 2


class StateSync:
    """The snapshot methods of ABCI."""

    def __init__(self, every: int, chain_id: str = "") -> None:
        """Every so many blocks a snapshot is taken; 0: none. CometBFT tells the chain's id only before the first block."""
        self.chain_id = chain_id
        self._every = every
        self._taken: OrderedDict[int, tuple[Header, list[bytes]]] = OrderedDict()
        self._wanted: Header | None = None
        self._chunks: dict[int, bytes] = {}

    def committed(self, shard: Shard) -> None:
        """A block was committed: take a snapshot if it is time. Without streams it would have no chunks, and a node
        that tells of such a one is dropped by its peers."""
        if self._every and shard.streams and shard.height is not None and shard.height % self._every == 0:
            self._taken[shard.height] = make(shard, self.chain_id, None, [])
            while len(self._taken) > KEPT:
                self._taken.popitem(last=False)

    def listed(self) -> bytes:
        """ListSnapshots."""
        return repeated(1, (_snapshot(header) for header, _ in self._taken.values()))

    def loaded(self, request: bytes) -> bytes:
        """LoadSnapshotChunk; empty if there is no such chunk any more."""
        height, chunk = number(request, 1), number(request, 3)
        _, chunks = self._taken.get(height, (None, []))
        return data_field(1, chunks[chunk]) if chunk < len(chunks) and number(request, 2) == FORMAT else b""

    def offered(self, request: bytes) -> bytes:
        """OfferSnapshot: taken if its header is whole and has the app hash that the light client found."""
        snapshot = message(request, 1)
        if number(snapshot, 2) != FORMAT:
            return field_int(1, Offer.REJECT_FORMAT)
        try:
            header = parse_header(message(snapshot, 5))
        except BadInput:
            return field_int(1, Offer.REJECT)
        told = (header.app_hash, header.hash, header.height, len(header.chunks))
        is_other = header.chain_id not in ("", self.chain_id or header.chain_id) or header.block is not None
        if is_other or told != (message(request, 2), message(snapshot, 4), number(snapshot, 1), number(snapshot, 3)):
            return field_int(1, Offer.REJECT)
        self._wanted, self._chunks = header, {}
        return field_int(1, Offer.ACCEPT)

    def applied(self, request: bytes, registry: NodeRegistry) -> tuple[bytes, Shard | None]:
        """ApplySnapshotChunk: the answer, and the shard once it is whole. Our own registry must agree with the snapshot's."""
        if self._wanted is None:
            return field_int(1, Applied.ABORT), None
        index, chunk = number(request, 1), message(request, 2)
        try:
            check_chunk(self._wanted, index, chunk)
        except (CheckFailed, IndexError):  # asked again, whoever sent it could go on like this for ever
            return field_int(1, Applied.RETRY) + data_field(2, to_varint(index)) + data_field(3, message(request, 3)), None
        self._chunks[index] = chunk
        if len(self._chunks) < len(self._wanted.chunks):
            return field_int(1, Applied.ACCEPT), None
        try:
            shard = restore(self._wanted, [self._chunks[number] for number in range(len(self._chunks))])
            if list(self._wanted.registry) != registered(registry, self._wanted.height):
                raise CheckFailed("the registry of the snapshot is not ours")
        except LakeError:
            self._wanted = None
            return field_int(1, Applied.REJECT_SNAPSHOT), None
        shard.registry, self._wanted = registry, None
        return field_int(1, Applied.ACCEPT), shard


def _snapshot(header: Header) -> bytes:
    named = field_int(1, header.height) + field_int(2, FORMAT) + field_int(3, len(header.chunks))
    return named + data_field(4, header.hash) + data_field(5, header.to_bytes())
