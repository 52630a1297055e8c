"""A shard as a file: it comes back as it was and goes on alike; what was changed in it is found."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from chainlake.errors import BadInput, CheckFailed, LakeError
from chainlake.shards import snapshot
from chainlake.shards.machine import Shard
from tests.unit.shards_making import REGISTRY, conflicting_blocks

CHAIN = conflicting_blocks(11, 10, transactions=20)


def made(height: int = 7, mode: str = "tree") -> Shard:
    shard = Shard(REGISTRY, mode)
    for number, sent in enumerate(CHAIN[:height], start=1):
        shard.run(number, sent)
    return shard


def written(shard: Shard, size: int = 400) -> bytes:
    header, _ = snapshot.make(shard, "metadata-shard-0000000000000000", None, [])
    chunks = list(snapshot.chunks_of(shard.streams.values(), shard.registry, size))
    sizes = tuple(snapshot.Chunk(len(one), hashlib.sha256(one).digest()) for one in chunks)
    out = io.BytesIO()
    snapshot.write(out, replace(header, chunks=sizes), chunks)
    return out.getvalue()


@pytest.mark.parametrize("mode", ["tree", "placeholder"])
def test_a_shard_comes_back_from_its_snapshot_and_goes_on_alike(mode: str) -> None:
    shard = made(7, mode)
    header, again = snapshot.read(io.BytesIO(written(shard)))
    assert len(header.chunks) > 3 and header.height == 7
    assert (again.streams, again.height, again.app_hash, again.state_root) == (shard.streams, 7, shard.app_hash, shard.state_root)
    for number, sent in enumerate(CHAIN[7:], start=8):
        assert again.run(number, sent) == shard.run(number, sent)
    assert snapshot.read(io.BytesIO(written(Shard(REGISTRY, mode, 3))))[1].streams == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:40],
        lambda data: data + b"\0",
        lambda data: b"something else" + data,
        lambda data: data.replace(b'"format":1', b'"format":2'),
        lambda data: data.replace(b'"height":7', b'"height":6'),
        lambda data: data.replace(b'"stream_count":', b'"stream_count":1'),
        lambda data: data.replace(b'"state_root":"0x', b'"state_root":"0xff', 1),
        lambda data: data.replace(b'"app_hash_mode":"tree"', b'"app_hash_mode":"none"'),
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
)
def test_a_snapshot_that_was_changed_is_refused(change: Callable[[bytes], bytes]) -> None:
    good = written(made())
    bad = change(good)
    assert bad != good
    with pytest.raises((BadInput, CheckFailed)):
        snapshot.read(io.BytesIO(bad))


def test_another_root_over_whole_chunks_is_refused() -> None:
    """Chunks that fit their hashes, but are not the state that the header claims."""
    header, chunks = snapshot.make(made(7), "c", None, [])
    other, _ = snapshot.make(made(6), "c", None, [])
    with pytest.raises(CheckFailed, match="do not use it"):
        snapshot.restore(replace(header, state_root=other.state_root), chunks)
    with pytest.raises(CheckFailed, match="node that its registry does not have"):
        snapshot.restore(replace(header, registry=header.registry[:1]), chunks)


def test_every_byte_of_a_snapshot_matters() -> None:
    good = written(made(4))
    for place in range(0, len(good), 7):
        bad = good[:place] + bytes([good[place] ^ 0x20]) + good[place + 1 :]
        with pytest.raises((LakeError, UnicodeDecodeError)):
            _, shard = snapshot.read(io.BytesIO(bad))
            raise BadInput("only names may differ") if shard.streams == made(4).streams else AssertionError(place)
