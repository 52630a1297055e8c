"""Forgers against the verifiers: trees that nobody would make honestly, steps put together from several proofs, keys that share
almost their whole path. What must never be: one root that shows a key both there and not there."""

import itertools
import random
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.errors import BadInput
from chainlake.merkle import csmt, ics23_verify, mpf, mpf_proof, smt
from chainlake.merkle.csmt_node import Bits, Node
from chainlake.merkle.csmt_proof import Step, Witness
from chainlake.merkle.ics23 import SMT_SPEC, ExistenceProof, HashOp, InnerOp, NonExistenceProof
from chainlake.merkle.radix_rows import nibbles
from tests.unit import merkle_by_definition
from tests.unit.merkle_by_definition import blake
from tests.unit.test_merkle_mpf import KEYS as CROWDED

# The sparse Merkle tree

PLACED = sorted((b"%d" % number for number in range(24)), key=smt.path_of)
PREFIXES = [b"\x01", b"\x01", b"\x02", b"\xff"]
"""What ICS-23 lets stand before an inner node: any byte that no leaf begins with."""


def hostile_tree(rng: random.Random, depth: int, way: str = "") -> tuple[bytes, list[ExistenceProof]]:
    """A tree of any shape, with leaves that are often where their paths lead, and all existence proofs under its root."""
    if depth == 0 or rng.random() < 0.3:
        here = [key for key in PLACED if format(smt.path_of(key)[0], "08b").startswith(way)]
        key = rng.choice(here if here and rng.random() < 0.8 else PLACED)
        if rng.random() < 0.25:
            return smt.EMPTY, []
        return smt.leaf_hash(key, b"v"), [ExistenceProof(key, b"v", SMT_SPEC.leaf_spec)]
    (left, lefts), (right, rights) = (hostile_tree(rng, depth - 1, way + side) for side in "01")
    prefix = rng.choice(PREFIXES)
    proofs = [climbed(one, InnerOp(HashOp.SHA256, prefix, right)) for one in lefts]
    proofs += [climbed(one, InnerOp(HashOp.SHA256, prefix + left)) for one in rights]
    return ics23_verify._hashed(HashOp.SHA256, prefix + left + right), proofs


def climbed(proof: ExistenceProof, step: InnerOp) -> ExistenceProof:
    return ExistenceProof(proof.key, proof.value, proof.leaf, (*proof.path, step))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_root_of_a_sparse_merkle_tree_shows_a_key_there_and_absent(rng: random.Random) -> None:
    root, proofs = hostile_tree(rng, 4)
    there = {one.key for one in proofs if smt.verify(root, one.key, b"v", smt.Proof(exist=one))}
    ordered = sorted((one for one in proofs if one.key in there), key=lambda one: smt.path_of(one.key))
    for key in there:
        for left, right in itertools.product([None, *ordered], repeat=2):
            assert not smt.verify(root, key, None, smt.Proof(nonexist=NonExistenceProof(key, left, right)))


def test_paths_that_part_at_the_very_last_bit_have_proofs_of_256_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [bytes(31) + bytes([last]) for last in range(6)] + [b"\xff" * 32]
    honest = ics23_verify._hashed
    monkeypatch.setattr(smt, "path_of", bytes)
    monkeypatch.setattr(ics23_verify, "_hashed", lambda how, data: data if data in keys else honest(how, data))
    items = {key: b"v" for key in keys if key[-1] not in (2, 5)}
    root = smt.root(items)
    for key in keys:
        proof = smt.Proof.from_bytes(smt.prove(items, key).to_bytes())
        assert smt.verify(root, key, items.get(key), proof)
        assert not smt.verify(root, key, None if key in items else b"v", proof)
    found = smt.prove(items, keys[0]).exist
    assert found is not None and len(found.path) == 256


# The compact sparse Merkle tree


class Grown(NamedTuple):
    """A node below a place: its jump, its value, what the value is the hash of, and what it joins."""

    jump: str
    value: bytes
    preimage: bytes
    below: tuple["Grown", "Grown"] | None

    def node(self, above: str = "") -> Node:
        bits = above + self.jump
        return Node(len(bits), int(bits or "0", 2), self.value)


def grown(rng: random.Random, depth: int, used: int = 0) -> Grown:
    """A tree of any shape, often of keys of one byte, whose leaves may hold what looks like two nodes."""
    if depth == 0 or used >= 7 or rng.random() < 0.25:
        size = 8 - used if rng.random() < 0.8 else rng.randrange(12)
        one = Node(2, rng.randrange(4), blake(b"x"))
        preimage = rng.choice([b"v", one.to_bytes() + one.to_bytes(1)])
        return Grown(digits(rng, size), blake(preimage), preimage, None)
    jump = digits(rng, rng.randrange(min(3, 8 - used)))
    left, right = (grown(rng, depth - 1, used + len(jump) + 1) for _ in range(2))
    preimage = left.node().to_bytes() + right.node().to_bytes()
    return Grown(jump, blake(preimage), preimage, (left, right))


def digits(rng: random.Random, size: int) -> str:
    return "".join(rng.choice("01") for _ in range(max(size, 0)))


def witnesses(tree: Grown, above: str = "", steps: tuple[Step, ...] = ()) -> Iterator[tuple[Witness, bytes]]:
    """All that can be shown of a tree, inner nodes too, with what its value is the hash of."""
    yield Witness(tree.node(above), steps), tree.preimage
    for side, one in enumerate(tree.below or ()):
        beside = (tree.below or ())[1 - side]
        step = Step(1 + len(one.jump), beside.node())
        yield from witnesses(one, above + tree.jump + str(side), (step, *steps))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_root_of_a_compact_tree_shows_a_key_there_and_absent(rng: random.Random) -> None:
    tree = grown(rng, 4)
    root = tree.node().root()
    shown = list(witnesses(tree))
    there = set[bytes]()
    for one, preimage in shown:
        assert one.root() == root
        if one.node.size in (8, 16):
            key = one.node.number.to_bytes(one.node.size // 8, "big")
            assert csmt.verify(root, key, preimage, csmt.Proof(one))
            there.add(key)
    for key in there:
        path = Bits(8 * len(key), int.from_bytes(key, "big"))
        assert not any(csmt.verify(root, key, None, csmt.Proof(one, path)) for one, _ in shown)


def test_an_inner_node_passes_for_a_key_that_begins_others_so_verifiers_take_whole_keys_only() -> None:
    """The construction does not say what is a leaf: a limit to know of, and why the next test matters."""
    items = {b"\x01\x00": b"l", b"\x01\x80": b"r"}
    joined = b"".join(Node(7, 0, blake(value)).to_bytes() for value in items.values())
    top = csmt.prove(items, b"\x02\x00").witness
    assert csmt.verify(csmt.root(items), b"\x01", joined, csmt.Proof(top))


@given(st.integers(0, 1 << 17), st.integers(0, 1 << 17), st.binary(min_size=32, max_size=32))
def test_no_key_of_an_output_begins_another(one: int, other: int, tx_id: bytes) -> None:
    assert one == other or not csmt.txin_key(tx_id, one).startswith(csmt.txin_key(tx_id, other))


# The Merkle Patricia Forestry


def crowded_hash(data: bytes) -> bytes:
    """Keys that are marked choose their own path."""
    return data[1:] if len(data) == 33 and data[:1] == b"!" else blake(data)


def test_keys_that_share_any_number_of_nibbles_have_the_root_and_the_proofs_of_the_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (mpf, mpf_proof, merkle_by_definition):
        monkeypatch.setattr(module, "blake", crowded_hash)
    base = "5" * 64
    paths = [base, *(base[:at] + "a" + base[at + 1 :] for at in (0, 1, 31, 32, 61, 62, 63)), base[:63] + "1"]
    keys = [b"!" + bytes.fromhex(path) for path in paths]
    for count in (1, 2, 3, len(keys)):
        for chosen in itertools.combinations(keys, count):
            items = dict.fromkeys(chosen, b"v")
            root = mpf.root(items)
            assert root == merkle_by_definition.mpf_root(items)
            for key in keys:
                proof = mpf.Proof.from_bytes(mpf.prove(items, key).to_bytes())
                assert mpf.verify(root, key, items.get(key), proof)
                assert not mpf.verify(root, key, None if key in items else b"v", proof)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_steps_of_several_proofs_put_together_show_nothing_that_is_not_so(rng: random.Random) -> None:
    items = {key: rng.choice([b"0", b"1"]) for key in rng.sample(CROWDED, rng.randrange(1, 30))}
    trie, root = mpf.Trie.of(items), mpf.root(items)
    honest = [trie.prove(key).steps for key in rng.sample(CROWDED, 6)]
    for key in rng.sample(CROWDED, 3):
        own = trie.prove(key).steps
        for other in honest:
            for cut, take in itertools.product(range(len(own) + 1), range(3)):
                proof = mpf.Proof((*own[:cut], *other[len(other) - take :]))
                assert key not in items or not mpf.verify(root, key, None, proof)
                assert not mpf.verify(root, key, b"0" if items.get(key) == b"1" else b"1", proof)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_step_said_to_be_of_another_kind_shows_nothing_that_is_not_so(rng: random.Random) -> None:
    """The same bytes as a branch, a fork and a leaf, at every place, with every skip that could fit."""
    items = dict.fromkeys(rng.sample(CROWDED, rng.randrange(2, 12)), b"v")
    trie, root = mpf.Trie.of(items), mpf.root(items)
    key = rng.choice(CROWDED)
    own = trie.prove(key).steps
    for at, step in enumerate(own):
        for skip in range(4):
            for bent in bends(step, skip, rng):
                proof = mpf.Proof((*own[:at], bent, *own[at + 1 :]))
                assert key not in items or not mpf.verify(root, key, None, proof)
                assert not mpf.verify(root, key, b"w" if key in items else b"v", proof)


def bends(step: mpf_proof.Step, skip: int, rng: random.Random) -> Iterator[mpf_proof.Step]:
    """Steps of other kinds with the same hashes."""
    match step:
        case mpf_proof.LeafStep(_, key, value):
            path = nibbles(key)
            for begin in range(skip, skip + 3):
                yield mpf_proof.ForkStep(skip, path[begin], path[begin + 1 : rng.randrange(begin + 1, 64)], value)
            yield mpf_proof.BranchStep(skip, key + value + key + value)
        case mpf_proof.ForkStep(_, nibble, prefix, root):
            whole = bytes([nibble]) + prefix
            for cut in range(len(whole)):
                yield mpf_proof.ForkStep(skip + cut, whole[cut], whole[cut + 1 :], root)
            yield mpf_proof.LeafStep(skip, root, root)
            yield mpf_proof.BranchStep(skip, 4 * root)
        case mpf_proof.BranchStep(_, neighbors):
            hashes = [neighbors[begin : begin + 32] for begin in range(0, 128, 32)]
            for one, other in itertools.permutations(hashes, 2):
                yield mpf_proof.LeafStep(skip, one, other)
            for one in hashes:
                yield mpf_proof.ForkStep(skip, rng.randrange(16), b"", one)
            yield mpf_proof.BranchStep(skip + 1, neighbors)


def test_a_root_that_was_made_up_can_show_a_key_there_and_absent_as_it_can_to_validators() -> None:
    """A branch after 33 nibbles that begin with 0, hashed like a leaf with that value: no trie of hashed keys has such a leaf."""
    key = next(key for key in CROWDED if blake(key).hex()[1] == "0" != blake(key).hex()[2])
    path, beside = nibbles(blake(key)), bytes(range(128))
    there = mpf.Proof((mpf_proof.BranchStep(0, beside), mpf_proof.BranchStep(33, beside)))
    found = mpf_proof.leaf_hash(blake(key), 35, blake(b"v"))
    inner = mpf_proof._merkle(path[34], found, mpf_proof.BranchStep(33, beside), 34)
    root = blake(mpf_proof._merkle(path[0], blake(path[1:34] + inner), mpf_proof.BranchStep(0, beside), 0))
    other = mpf_proof._packed(bytes([path[0], path[2]]) + b"".join(bytes([0, nibble]) for nibble in path[3:34]))
    absent = mpf.Proof((mpf_proof.BranchStep(0, beside), mpf_proof.LeafStep(0, other, inner)))
    assert mpf.verify(root, key, b"v", there) and mpf.verify(root, key, None, absent)


# Anything else than one canonical form

ITEMS = {b"%03d" % number: b"v" for number in range(30)}


@pytest.mark.parametrize("key", [b"007", b"099"], ids=["present", "absent"])
@pytest.mark.parametrize("kind", [smt, mpf, csmt])
def test_a_proof_with_a_byte_more_or_less_anywhere_shows_nothing(kind: ModuleType, key: bytes) -> None:
    root, data, value = kind.root(ITEMS), kind.prove(ITEMS, key).to_bytes(), ITEMS.get(key)
    assert accepted(kind, root, key, value, data)
    for at in range(len(data) + 1):
        more = [data[:at] + one + data[at:] for one in (b"\0", b"\x01", b"\x80", b"\xff")]
        for changed in (data[:at] + data[at + 1 :], *more):
            assert changed == data or not accepted(kind, root, key, value, changed)


def accepted(kind: ModuleType, root: bytes, key: bytes, value: bytes | None, data: bytes) -> bool:
    try:
        return bool(kind.verify(root, key, value, kind.Proof.from_bytes(data)))
    except BadInput:
        return False
