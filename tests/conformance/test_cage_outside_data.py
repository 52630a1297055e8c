"""Blocks of real Cardano chains, recorded outside this project: transactions decode, and the UTxO set follows."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import cbor2
import pytest

from chainlake.cage.decode import decode_block
from chainlake.cage.transaction import Tx
from chainlake.lake import Lake
from chainlake.sources.base import RawBlock
from chainlake.sources.formats import format_of
from tests.unit.cage_replay import Replay

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "cardano"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the recorded chains are not at {DATA}")


def read(*names: str) -> Iterator[RawBlock]:
    paths = [path for name in names for path in format_of("cardano").expand(str(DATA / name))]
    for split in format_of("cardano").plan(paths, None, 1 << 40, 1 << 40, {}):
        for block in format_of("cardano").read(split, {}):
            assert isinstance(block, RawBlock), block
            yield block


def test_every_recorded_block_decodes_and_agrees_with_a_general_decoder() -> None:
    count, hashes, shown = 0, set[bytes | None](), set[bytes]()
    for block in read(""):
        txs = decode_block(block.payload)
        assert [tx.tx_id for tx in txs] == [hashlib.blake2b(one.payload, digest_size=32).digest() for one in block.transactions]
        _, (_, bodies, witnesses, *_) = cbor2.loads(block.payload)
        for tx, body, witness in zip(txs, bodies, witnesses, strict=True):
            assert sorted(tx.inputs) == sorted((bytes(i[0]), i[1]) for i in body[0])
            assert sorted(tx.references) == sorted((bytes(i[0]), i[1]) for i in body.get(18, ()))
            assert [out.lovelace for out in tx.outputs] == [_lovelace(out) for out in body[1]]
            assert len(tx.redeemers) == len(witness.get(5, ()))
            assert len(tx.datums) == len(witness.get(4, ()))
            hashes |= {output.datum_hash for output in tx.outputs}
            shown |= {hashlib.blake2b(datum, digest_size=32).digest() for datum in tx.datums}
            assert sum(len(names) for names in body.get(9, {}).values()) == len(tx.mints)
        count += len(txs)
    assert count > 230 and len(hashes & shown) > 5, "datums that outputs have the hash of"


def _lovelace(output: object) -> int:
    value = output[1]  # type: ignore[index]
    return int(value if isinstance(value, int) else value[0])


def replayed(txs: list[tuple[int, list[Tx]]]) -> Replay:
    state = Replay(None)
    for height, block in txs:
        state.apply(height, block)
    return state


def test_from_genesis_every_input_resolves_but_those_that_spend_genesis_funds() -> None:
    blocks = [(block.height, decode_block(block.payload)) for block in read(*(f"preview_0000{n}.chunk" for n in range(3)))]
    state = replayed(blocks)
    own = {tx.tx_id for _, txs in blocks for tx in txs}
    assert state.unresolved and all(place.tx_id not in own for _, place in state.unresolved)
    assert {height for height, _ in state.unresolved} == {
        height for height, txs in blocks for tx in txs if tx.inputs[0].tx_id not in own
    }


@pytest.mark.spark
def test_a_real_segment_has_the_same_utxo_set_in_spark_as_in_a_replay(full_lake: Lake, chain: str) -> None:
    full_lake.ingest(chain, "cardano", str(DATA / "preprod_01285.chunk"), {})
    for stage in ("bronze.cage", "silver.cage"):
        done = full_lake.run_stage(stage, chains=chain)
        assert list(done["status"]) == ["ok"], list(done["error"])
    state = replayed([(block.height, decode_block(block.payload)) for block in read("preprod_01285.chunk")])
    last = full_lake.table("silver.chain_roots", chain=chain).orderBy("height", ascending=False).limit(1).collect()[0]
    assert (bytes(last["utxo_root"]), last["utxo_count"]) == (state.utxo_root(), len(state.utxos))
    assert full_lake.table("silver.unresolved_inputs", chain=chain).count() == len(state.unresolved)
