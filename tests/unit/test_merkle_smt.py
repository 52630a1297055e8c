"""The sparse Merkle tree: its definition, the stored form against it, and proofs that cannot be bent."""

import hashlib
import itertools
import json
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.errors import BadInput, BrokenPromise, CheckFailed
from chainlake.merkle import smt, smt_fold, smt_nodes
from chainlake.merkle.ics23 import SMT_SPEC, ExistenceProof, HashOp, InnerOp, LeafOp, NonExistenceProof
from chainlake.merkle.ics23_verify import check_existence
from chainlake.merkle.smt import EMPTY, Proof, leaf_hash, path_of, prove, root, step, verify
from chainlake.merkle.smt_fold import Folded, Tree, Update, combine, fold, fold_part
from chainlake.merkle.smt_nodes import Node, path_digits
from chainlake.merkle.smt_prove import prove_stored

Items = dict[bytes, bytes]
Blocks = list[dict[bytes, bytes | None]]


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def close_keys(count: int) -> list[bytes]:
    """Keys of which many share the first four to seven digits of their paths, so that small trees are deep."""
    keys = sorted((sha(number.to_bytes(4, "big")) for number in range(10_000)), key=path_digits)
    by_closeness = sorted(itertools.pairwise(keys), key=lambda pair: -shared_digits(*pair))
    return list(dict.fromkeys(itertools.chain.from_iterable(by_closeness)))[:count]


def shared_digits(one: bytes, two: bytes) -> int:
    return next(at for at, (a, b) in enumerate(zip(path_digits(one), path_digits(two), strict=True)) if a != b)


KEYS = close_keys(24)
ITEMS = {key: b"value of " + key[:2] for key in KEYS[:12]}
ABSENT = KEYS[12:]

values = st.one_of(st.none(), st.binary(min_size=1, max_size=3))
some_blocks = st.lists(st.dictionaries(st.sampled_from(KEYS), values, max_size=8), max_size=6)
some_items = st.dictionaries(st.sampled_from(KEYS), st.binary(min_size=1, max_size=3), max_size=12)
some_digits = st.integers(0, 3)


def updates_of(blocks: Blocks) -> list[Update]:
    return [
        Update(block, key, None if value is None else leaf_hash(key, value))
        for block, changes in enumerate(blocks, 1)
        for key, value in changes.items()
    ]


def states(blocks: Blocks) -> Iterator[Items]:
    """The items after each block."""
    items: Items = {}
    for changes in blocks:
        merged = {**items, **changes}
        items = {key: value for key, value in merged.items() if value is not None}
        yield items


class Table:
    """Rows as a lake keeps them: the last one of each prefix counts, and none without leaves."""

    def __init__(self) -> None:
        self.rows: dict[str, Node] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            assert node.leaves or node.prefix in self.rows, f"{node} removes a row that was not there"
            self.rows[node.prefix] = node
        self.rows = {prefix: node for prefix, node in self.rows.items() if node.leaves}

    def below(self, prefixes: Iterable[str]) -> list[Node]:
        wanted = set(prefixes)
        return [node for prefix, node in self.rows.items() if prefix and prefix[:-1] in wanted]

    def top(self) -> Node:
        return self.rows.get("", smt_nodes.empty(0, ""))


def tree_table(items: Items, digits: int = 2) -> Table:
    table = Table()
    table.add(fold([], updates_of([dict(items)]), digits).nodes)
    return table


def parents(paths: Iterable[str], digits: int, deepest: int) -> set[str]:
    """The prefixes below which rows are needed to change these paths, in parts of so many digits.

    `deepest` is the length of the longest prefix in the stored tree: below it nothing is stored.
    """
    return {path[:depth] for path in paths for depth in range(digits, max(deepest, digits))}


def fold_in_parts(table: Table, updates: Sequence[Update], digits: int) -> Folded:
    """What Spark does: each part alone, with only the rows along the touched paths; then the tops."""
    by_part: dict[str, list[Update]] = defaultdict(list)
    for update in updates:
        by_part[path_digits(update.key)[:digits]].append(update)
    deepest = max(map(len, table.rows), default=0)
    folded = []
    for prefix, part in by_part.items():
        own = [table.rows[prefix]] if prefix in table.rows else []
        rows = own + table.below(parents([path_digits(update.key) for update in part], digits, deepest))
        folded.append(fold_part(prefix, rows, part))
    crown = [node for node in table.rows.values() if len(node.prefix) <= digits]
    joined = combine(crown, [top for part in folded for top in part.tops])
    return Folded(joined.tops, [*joined.nodes, *(node for part in folded for node in part.nodes)])


def stored_by_rule(items: Items, digits: int) -> dict[str, tuple[int, bytes, bytes | None]]:
    """The rows that the storage rule asks for, from the items alone."""
    under: dict[str, list[bytes]] = defaultdict(list)
    for key in items:
        for depth in range(65):
            under[path_digits(key)[:depth]].append(key)
    return {
        prefix: (len(keys), subtree(items, prefix), keys[0] if len(keys) == 1 else None)
        for prefix, keys in under.items()
        if len(prefix) <= digits or len(under[prefix[:-1]]) > 1
    }


def subtree(items: Items, prefix: str) -> bytes:
    leaves = smt._leaves({key: value for key, value in items.items() if path_digits(key).startswith(prefix)})
    return smt._subtree(leaves, 0, len(leaves), 4 * len(prefix))


# The definition


def test_an_empty_tree_is_zeros_and_a_lone_leaf_is_the_root() -> None:
    key, value = b"stream", b"metadata"
    assert root({}) == bytes(32)
    assert root({key: value}) == sha(b"\x00" + sha(key) + sha(value))


def test_two_leaves_meet_where_their_paths_part_and_empty_siblings_are_hashed() -> None:
    one, two = sorted(KEYS[:2], key=path_of)
    expected = sha(b"\x01" + leaf_hash(one, b"1") + leaf_hash(two, b"2"))
    bits = [format(int.from_bytes(path_of(key), "big"), "0256b") for key in (one, two)]
    depth = next(at for at in range(256) if bits[0][at] != bits[1][at])
    for side in reversed(bits[0][:depth]):
        expected = sha(b"\x01" + expected + EMPTY) if side == "0" else sha(b"\x01" + EMPTY + expected)
    assert depth >= 16 and root({two: b"2", one: b"1"}) == expected


@pytest.mark.parametrize(("key", "value"), [(b"", b"v"), (b"k", b"")])
def test_empty_keys_and_values_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(BadInput, match="neither may be empty"):
        root({key: value})


# The stored form


@settings(max_examples=60, deadline=None)
@given(some_blocks, some_digits)
def test_folding_block_by_block_gives_the_root_of_every_state(blocks: Blocks, digits: int) -> None:
    tree, table = Tree(digits=digits), Table()
    last = EMPTY
    for number, items in enumerate(states(blocks), 1):
        folded = tree.fold(u for u in updates_of(blocks) if u.block == number)
        table.add(folded.nodes)
        expected = root(items)
        assert [top.hash for top in folded.tops] == ([expected] if expected != last else [])
        assert {prefix: (n.leaves, n.hash, n.key) for prefix, n in table.rows.items()} == stored_by_rule(items, digits)
        last = expected


@settings(max_examples=60, deadline=None)
@given(some_blocks, some_blocks, some_digits)
def test_parts_folded_alone_from_the_rows_they_need_equal_the_whole(first: Blocks, then: Blocks, digits: int) -> None:
    table = Table()
    table.add(fold_in_parts(table, updates_of(first), digits).nodes)
    updates = [update._replace(block=update.block + len(first)) for update in updates_of(then)]
    folded = fold_in_parts(table, updates, digits)
    assert sorted(folded.nodes) == sorted(fold(table.rows.values(), updates, digits).nodes)
    after = list(states(first + then))[len(first) :]
    by_block = {top.block - len(first): top for top in folded.tops}
    current = table.top()
    for number, items in enumerate(after, 1):
        current = by_block.get(number, current)
        assert (current.hash, current.leaves) == (root(items), len(items))


@settings(max_examples=40, deadline=None)
@given(some_blocks, st.data())
def test_rows_do_not_depend_on_how_blocks_are_batched(blocks: Blocks, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(blocks)))
    updates = updates_of(blocks)
    table, rows = Table(), []
    for batch in ([u for u in updates if u.block <= cut], [u for u in updates if u.block > cut]):
        folded = fold(table.rows.values(), batch)
        table.add(folded.nodes)
        rows += folded.nodes
    assert sorted(rows) == sorted(fold([], updates).nodes)


def test_no_row_is_written_twice_in_a_block_and_nothing_for_what_stays_the_same() -> None:
    table = tree_table(ITEMS)
    mixed = {KEYS[0]: None, KEYS[1]: b"new", KEYS[13]: b"v", KEYS[2]: ITEMS[KEYS[2]]}
    nodes = fold(table.rows.values(), updates_of([mixed])).nodes
    assert len({node.prefix for node in nodes}) == len(nodes)
    same = fold(table.rows.values(), updates_of([dict(ITEMS), {KEYS[20]: None}]))
    assert (same.tops, same.nodes) == ([], [])


def test_of_several_updates_of_a_key_in_a_block_the_last_counts() -> None:
    key = KEYS[0]
    updates = [Update(1, key, leaf_hash(key, b"1")), Update(1, key, None), Update(1, key, leaf_hash(key, b"2"))]
    assert fold([], updates).tops[-1].hash == root({key: b"2"})
    table = tree_table(ITEMS)
    assert fold(table.rows.values(), [*updates, Update(1, key, None)]).tops[-1].leaves == len(ITEMS) - 1


def test_paths_may_part_at_the_very_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smt, "path_of", bytes)
    monkeypatch.setattr(smt_fold, "path_digits", bytes.hex)
    keys = [bytes(31) + bytes([last]) for last in (0, 1, 2)] + [b"\xff" * 32]
    items = {key: b"v" for key in keys}
    folded = fold([], updates_of([dict(items)]))
    assert folded.tops[-1].hash == root(items) and max(len(node.prefix) for node in folded.nodes) == 64
    left = fold(folded.nodes, [Update(2, keys[0], None), Update(3, keys[1], None)])
    assert [top.hash for top in left.tops] == [root({k: b"v" for k in keys[1:]}), root({k: b"v" for k in keys[2:]})]


def test_an_update_costs_what_its_depth_costs_not_what_the_tree_holds() -> None:
    items = {sha(number.to_bytes(4, "big")): b"v" for number in range(4_000)}
    table = tree_table(items)
    key = next(iter(items))
    needed = table.below(parents([path_digits(key)], 2, max(map(len, table.rows))))
    folded = fold_part(path_digits(key)[:2], [table.rows[path_digits(key)[:2]], *needed], [Update(2, key, leaf_hash(key, b"w"))])
    assert len(needed) <= 16 * 4 and len(folded.nodes) <= 5
    assert len(table.rows) < 2 * len(items), "empty subtrees and lone leaves are not stored level by level"


def test_rows_that_are_missing_or_stale_are_noticed_before_a_wrong_root_is_made() -> None:
    table = tree_table(ITEMS)
    key = KEYS[0]
    update = [Update(2, key, leaf_hash(key, b"new"))]
    own = next(node for node in table.rows.values() if node.key == key and len(node.prefix) > 2)
    without = [node for node in table.rows.values() if node.prefix != own.prefix]
    for rows in (without, [*without, own._replace(hash=sha(b"other"))], without[:1]):
        with pytest.raises(BrokenPromise, match="load all rows one digit below it"):
            fold(rows, update)


def test_updates_and_tops_that_do_not_belong_are_refused() -> None:
    with pytest.raises(BadInput, match="outside the part 'zz'"):
        fold_part("zz", [], [Update(1, b"key", EMPTY)])
    with pytest.raises(BadInput, match="same number"):
        combine([], [Node(1, "ab", 1, EMPTY, b"k"), Node(1, "c", 1, EMPTY, b"l")])
    with pytest.raises(BrokenPromise, match="two tops in block 1"):
        combine([], [Node(1, "ab", 1, EMPTY, b"k")] * 2)


# Proofs


@settings(max_examples=40, deadline=None)
@given(some_items, st.sampled_from(KEYS), some_digits)
def test_proofs_verify_and_are_the_same_from_stored_rows(items: Items, key: bytes, digits: int) -> None:
    proof, table = prove(items, key), tree_table(items, digits)
    assert verify(root(items), key, items.get(key), proof)
    assert prove_stored(table.top(), table.below, key, items.__getitem__) == proof
    assert not verify(root(items), key, None if key in items else b"v", proof)
    assert not verify(root(items), key, b"another value", proof)
    assert not verify(sha(root(items)), key, items.get(key), proof)
    assert Proof.from_bytes(proof.to_bytes()) == proof
    assert Proof.from_json(json.loads(json.dumps(proof.to_json()))) == proof


def test_a_proof_from_rows_that_do_not_fit_the_values_is_not_given_out() -> None:
    table = tree_table(ITEMS)
    with pytest.raises(BrokenPromise, match="run lake verify"):
        prove_stored(table.top(), table.below, KEYS[0], lambda key: b"stale")


def test_a_proof_reads_few_rows_and_asks_for_the_path_at_once() -> None:
    items = {sha(number.to_bytes(4, "big")): b"v" for number in range(4_000)}
    table = tree_table(items)
    asked: list[Sequence[str]] = []

    def load(prefixes: Sequence[str]) -> list[Node]:
        asked.append(prefixes)
        return table.below(prefixes)

    prove_stored(table.top(), load, next(iter(items)), items.__getitem__)
    assert len(asked) == 1
    prove_stored(table.top(), load, b"absent", items.__getitem__)
    assert len(asked) <= 2 + 2 * 4


@pytest.mark.parametrize("key", [b"a", b"x"], ids=["present", "absent"])
def test_every_single_bit_of_a_proof_matters(key: bytes) -> None:
    items = {one: b"value of " + one for one in (b"a", b"b", b"c", b"d", b"e")}
    good, goal, value = prove(items, key).to_bytes(), root(items), items.get(key)
    assert verify(goal, key, value, Proof.from_bytes(good))
    for at in range(8 * len(good)):
        assert not accepted(flipped(good, at), goal, key, value), f"bit {at}"


def test_every_single_bit_of_root_key_and_value_matters() -> None:
    key = KEYS[0]
    goal, proof = root(ITEMS), prove(ITEMS, key)
    for at in range(256):
        assert not verify(flipped(goal, at), key, ITEMS[key], proof)
        assert not verify(goal, flipped(key, at), ITEMS[key], proof)
        assert not verify(goal, flipped(key, at), None, prove(ITEMS, ABSENT[0]))
    for at in range(8 * len(ITEMS[key])):
        assert not verify(goal, key, flipped(ITEMS[key], at), proof)


def flipped(data: bytes, at: int) -> bytes:
    return data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]


def accepted(data: bytes, goal: bytes, key: bytes, value: bytes | None) -> bool:
    try:
        return verify(goal, key, value, Proof.from_bytes(data))
    except BadInput:
        return False


def exist(items: Items, key: bytes) -> ExistenceProof:
    found = prove(items, key).exist
    assert found is not None
    return found


def test_neighbours_that_leave_room_prove_nothing() -> None:
    ordered = sorted(ITEMS, key=path_of)
    goal = root(ITEMS)
    for at, key in enumerate(ordered):
        left = exist(ITEMS, ordered[at - 1]) if at else None
        right = exist(ITEMS, ordered[at + 1]) if at + 1 < len(ordered) else None
        pairs = [
            (left, right),
            (left, None),
            (None, right),
            (None, None),
            (right, left),
            (exist(ITEMS, key), right),
            (left, left),
        ]
        assert not any(verify(goal, key, None, Proof(nonexist=NonExistenceProof(key, *pair))) for pair in pairs)


def test_an_absence_needs_the_neighbours_on_both_sides() -> None:
    goal = root(ITEMS)
    for key in ABSENT:
        proof = prove(ITEMS, key).nonexist
        assert proof is not None and verify(goal, key, None, Proof(nonexist=proof))
        if proof.left and proof.right:
            for fewer in (replace(proof, left=None), replace(proof, right=None)):
                assert not verify(goal, key, None, Proof(nonexist=fewer))
        assert not verify(goal, key, None, Proof(nonexist=NonExistenceProof(key)))


def test_only_the_empty_tree_proves_absence_without_neighbours() -> None:
    proof = prove({}, KEYS[0])
    assert verify(EMPTY, KEYS[0], None, proof)
    assert not verify(EMPTY, KEYS[1], None, proof)
    assert not verify(sha(b""), KEYS[0], None, proof)
    assert not verify(EMPTY, b"", None, Proof(nonexist=NonExistenceProof(b"")))


BENT: list[tuple[str, Callable[[ExistenceProof], ExistenceProof]]] = [
    ("how the leaf is hashed", lambda proof: replace(proof, leaf=None)),
    ("the spec wants", lambda proof: replace(proof, leaf=replace(proof.leaf or LeafOp(), prehash_key=HashOp.NO_HASH))),
    ("the leaf begins with", lambda proof: replace(proof, leaf=replace(proof.leaf or LeafOp(), prefix=b"\x01"))),
    ("leads to root", lambda proof: replace(proof, leaf=replace(proof.leaf or LeafOp(), prefix=b"\x00\x00"))),
    ("leads to root", lambda proof: replace(proof, path=proof.path[1:])),
    ("steps", lambda proof: replace(proof, path=proof.path * 100)),
    ("a step hashes with", lambda proof: replace(proof, path=(replace(proof.path[0], hash=HashOp.SHA512), *proof.path[1:]))),
    ("begins like a leaf", lambda proof: replace(proof, path=(replace(proof.path[0], prefix=b"\x00"), *proof.path[1:]))),
    ("no place fits", lambda proof: replace(proof, path=(InnerOp(HashOp.SHA256, b"\x01" * 17, bytes(16)), *proof.path[1:]))),
    ("no place fits", lambda proof: replace(proof, path=(InnerOp(HashOp.SHA256, b"\x01", bytes(64)), *proof.path[1:]))),
    ("no place fits", lambda proof: replace(proof, path=(InnerOp(HashOp.SHA256, b"", bytes(32)), *proof.path[1:]))),
]


@pytest.mark.parametrize(("reason", "bend"), BENT)
def test_a_proof_outside_the_spec_is_refused_with_the_reason(
    reason: str, bend: Callable[[ExistenceProof], ExistenceProof]
) -> None:
    key = KEYS[0]
    bent = bend(exist(ITEMS, key))
    with pytest.raises(CheckFailed, match=reason):
        smt.check(root(ITEMS), key, ITEMS[key], Proof(exist=bent))


def test_a_leaf_in_the_wrong_place_is_refused_although_its_hashes_are_right() -> None:
    one, two = sorted([b"a", b"b", b"c"], key=path_of)[::2]
    assert path_of(one)[0] < 128 <= path_of(two)[0]
    hashes = leaf_hash(two, b"2"), leaf_hash(one, b"1")
    crossed = sha(b"\x01" + hashes[0] + hashes[1])
    proof = ExistenceProof(one, b"1", SMT_SPEC.leaf_spec, (step(smt.RIGHT, hashes[0]),))
    check_existence(SMT_SPEC, crossed, one, b"1", proof)
    with pytest.raises(CheckFailed, match="not where its path leads"):
        smt.check(crossed, one, b"1", Proof(exist=proof))


# Hostile input


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_bad_input_or_a_canonical_proof_of_nothing(data: bytes) -> None:
    try:
        proof = Proof.from_bytes(data)
    except BadInput:
        return
    assert proof.to_bytes() == data and not verify(root(ITEMS), KEYS[0], ITEMS[KEYS[0]], proof)


def nested(number: int, data: bytes) -> bytes:
    size, head = len(data), bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + data


HUGE = {
    "too long": bytes(1 << 21),
    "the same field again and again": nested(1, b"") * 300_000,
    "a path of empty steps": nested(1, nested(4, b"") * 300_000),
    "an endless number": b"\x80" * 900_000,
    "a length of 2^63": b"\x0a" + b"\xff" * 8 + b"\x7f",
    "unknown fields": nested(15, b"") * 300_000,
    "a batch": nested(3, nested(1, b"")),
    "both kinds": nested(1, b"") + nested(2, b""),
    "neither kind": b"",
    "a field out of order": nested(1, nested(2, b"v") + nested(1, b"k")),
    "a default written out": nested(1, nested(1, b"")),
    "an unknown hash": nested(1, nested(3, b"\x08\x63")),
}


@pytest.mark.parametrize("name", HUGE)
def test_hostile_bytes_are_refused_quickly_in_little_memory(name: str) -> None:
    data = HUGE[name]
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(BadInput):
        Proof.from_bytes(data)
    spent, peak = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spent < 10 and peak < 4 * len(data) + (1 << 20)


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], "x", {}, {"exist": 1}, {"exist": {}, "nonexist": {}}, {"batch": {}}, {"exist": {"key": 5}}),
        *(
            {"exist": {"key": "&&"}},
            {"exist": {"leaf": {"hash": "MD5"}}},
            {"exist": {"path": {}}},
            {"exist": {"path": [{}] * 300}},
            {"exist": {"key": orjson.loads("[" * 1000 + "]" * 1000)}},
        ),
    ],
)
def test_hostile_json_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        Proof.from_json(value)
