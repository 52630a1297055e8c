"""Roots and proofs of the Merkle Patricia Forestry that its reference implementation publishes."""

import json
from pathlib import Path
from typing import Any

import pytest

from chainlake.merkle import mpf

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "merkle" / "mpf_vectors.json"

pytestmark = pytest.mark.skipif(not DATA.is_file(), reason=f"the published vectors are not at {DATA}")


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text())
    return found


def test_the_root_after_each_insert(vectors: dict[str, Any]) -> None:
    trie = mpf.Trie()
    assert trie.root().hex() == vectors["empty"]
    for one in vectors["inserts"]:
        trie.insert(one["key"].encode(), one["value"].encode())
        assert trie.root().hex() == one["root"], one["key"]


def test_deleting_in_reverse_goes_back_through_the_same_roots(vectors: dict[str, Any]) -> None:
    inserts = vectors["inserts"]
    trie = mpf.Trie.of({one["key"].encode(): one["value"].encode() for one in inserts})
    before = [vectors["empty"], *(one["root"] for one in inserts[:-1])]
    for one, expected in zip(reversed(inserts), reversed(before), strict=True):
        trie.delete(one["key"].encode(), one["value"].encode())
        assert trie.root().hex() == expected


def test_published_inclusion_proofs_verify_with_and_without_the_key(vectors: dict[str, Any]) -> None:
    for one in vectors["inclusion"]:
        proof, key, value = mpf.Proof.from_json(one["proof"]), one["key"].encode(), one["value"].encode()
        assert mpf.verify(bytes.fromhex(one["root_with"]), key, value, proof)
        assert mpf.verify(bytes.fromhex(one["root_without"]), key, None, proof)
        assert not mpf.verify(bytes.fromhex(one["root_with"]), key, None, proof)
        assert not mpf.verify(bytes.fromhex(one["root_with"]), key, value + b"x", proof)


def test_published_proofs_have_these_bytes_and_this_json(vectors: dict[str, Any]) -> None:
    for one in vectors["inclusion"]:
        proof = mpf.Proof.from_json(one["proof"])
        assert proof.to_json() == one["proof"]
        assert proof.to_bytes().hex() == one["proof_cbor"]
        assert mpf.Proof.from_bytes(bytes.fromhex(one["proof_cbor"])) == proof


def test_the_published_exclusion_proof_verifies(vectors: dict[str, Any]) -> None:
    for one in vectors["exclusion"]:
        proof = mpf.Proof.from_json(one["proof"])
        assert mpf.verify(bytes.fromhex(one["root"]), one["key"].encode(), None, proof)
        assert not mpf.verify(bytes.fromhex(one["root"]), b"raspberry[uid: 0]", None, proof)
