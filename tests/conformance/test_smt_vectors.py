"""Roots and proofs of the sparse Merkle tree, made outside this project (celestiaorg/smt v0.3.0, cosmos/ics23 v0.11.0)."""

import json
from pathlib import Path
from typing import Any

import pytest

from chainlake.merkle.ics23 import ExistenceProof
from chainlake.merkle.smt import leaf_hash, prove, root, verify
from chainlake.merkle.smt_fold import Update, fold
from chainlake.merkle.smt_nodes import Node
from chainlake.merkle.smt_prove import Load, prove_stored

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "data" / "merkle" / "smt_vectors.json"

pytestmark = pytest.mark.skipif(not VECTORS.is_file(), reason=f"the vectors are not at {VECTORS}")


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    found: list[Any] = json.loads(VECTORS.read_text())
    assert [case["n"] for case in found] == [1, 2, 3, 17]
    return found


def items_of(case: Any) -> dict[bytes, bytes]:
    return {bytes.fromhex(key): bytes.fromhex(value) for key, value in case["items"]}


def as_vector(proof: ExistenceProof | None) -> Any:
    """A proof in the words of the vectors."""
    if proof is None:
        return None
    path = [{"prefix": step.prefix.hex(), "suffix": step.suffix.hex()} for step in proof.path]
    return {"key": proof.key.hex(), "value": proof.value.hex(), "path": path}


def full(vector: Any) -> Any:
    """A vector with its empty prefixes and suffixes written out."""
    if vector is None:
        return None
    return {**vector, "path": [{"prefix": "", "suffix": "", **step} for step in vector["path"]]}


def loader(rows: list[Node]) -> Load:
    return lambda prefixes: [row for row in rows if row.prefix and row.prefix[:-1] in prefixes]


def test_roots_equal_the_vectors(cases: list[Any]) -> None:
    assert [root(items_of(case)).hex() for case in cases] == [case["root"] for case in cases]


@pytest.mark.parametrize("digits", [0, 1, 2, 3])
def test_roots_folded_one_item_per_block_equal_the_vectors(cases: list[Any], digits: int) -> None:
    for case in cases:
        updates = [Update(block, key, leaf_hash(key, value)) for block, (key, value) in enumerate(items_of(case).items())]
        assert fold([], updates, digits).tops[-1].hash.hex() == case["root"]


def test_existence_proofs_equal_the_vectors_and_verify(cases: list[Any]) -> None:
    for case in cases:
        for vector in case["exist"]:
            key, value = bytes.fromhex(vector["key"]), bytes.fromhex(vector["value"])
            proof = prove(items_of(case), key)
            assert as_vector(proof.exist) == full(vector)
            assert verify(bytes.fromhex(case["root"]), key, value, proof)


def test_absence_proofs_equal_the_vectors_and_verify(cases: list[Any]) -> None:
    for case in cases:
        for vector in case["nonexist"]:
            key = bytes.fromhex(vector["key"])
            proof = prove(items_of(case), key)
            assert proof.nonexist is not None
            assert as_vector(proof.nonexist.left) == full(vector["left"])
            assert as_vector(proof.nonexist.right) == full(vector["right"])
            assert verify(bytes.fromhex(case["root"]), key, None, proof)


def test_proofs_from_stored_rows_are_those_of_the_vectors(cases: list[Any]) -> None:
    for case in cases:
        items = items_of(case)
        folded = fold([], [Update(1, key, leaf_hash(key, value)) for key, value in items.items()])
        for vector in case["exist"] + case["nonexist"]:
            key = bytes.fromhex(vector["key"])
            assert prove_stored(folded.tops[-1], loader(folded.nodes), key, items.__getitem__) == prove(items, key)
