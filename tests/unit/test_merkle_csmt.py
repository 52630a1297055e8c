"""The compact sparse Merkle tree against its definition, written once more and naively; its rows, its parts, its proofs."""

import random
import tracemalloc
from collections.abc import Mapping

import cbor2
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle import csmt
from chainlake.merkle.csmt_node import Bits, Node, bits_of
from tests.unit.merkle_by_definition import blake, csmt_root

Items = dict[bytes, bytes]


def txin(number: int) -> bytes:
    """Keys of a UTxO set: some outputs of one transaction, with indexes of one, two and three bytes; some transactions alike."""
    tx_id = bytes([number % 5]) + blake(b"%d" % (number // 3))[1:]
    return csmt.txin_key(tx_id, (0, 30, 700)[number % 3] + number)


TXINS = [txin(number) for number in range(60)]
SHORT = [bytes([high, low]) for high in (0, 1, 0x7F, 0x80, 0xFF) for low in (0, 1, 2, 3, 8, 0x40, 0xFE, 0xFF)]
KEYS = st.sampled_from([SHORT, TXINS])
VALUES = st.sampled_from([b"", b"v", b"w" * 70])
ITEMS = KEYS.flatmap(lambda keys: st.dictionaries(st.sampled_from(keys), VALUES, max_size=40))
ITEMS_AND_KEY = KEYS.flatmap(
    lambda keys: st.tuples(st.dictionaries(st.sampled_from(keys), VALUES, max_size=30), st.sampled_from(keys))
)


def tree_of(items: Items, base: bytes = b"") -> csmt.Tree:
    tree = csmt.Tree(base=base)
    for key, value in items.items():
        tree.insert(key, value)
    return tree


def rows_of(items: Items, base: bytes = b"") -> dict[bytes, bytes]:
    return {path: row for path, row in tree_of(items, base).changes().items() if row is not None}


def store(rows: dict[bytes, bytes], changes: Mapping[bytes, bytes | None]) -> None:
    for path, row in changes.items():
        if row is None:
            del rows[path]
        else:
            rows[path] = row


def along(rows: Mapping[bytes, bytes], keys: set[bytes], base: bytes = b"") -> dict[bytes, bytes]:
    """Only what `row_paths` asks for."""
    return {path: rows[path] for key in keys for path in csmt.row_paths(key, base) if path in rows}


def changed(items: Items, block: list[csmt.Change]) -> Items:
    after = dict(items)
    for key, value in block:
        if value is None:
            del after[key]
        else:
            after[key] = value
    return after


@st.composite
def chains(draw: st.DrawFn) -> list[list[csmt.Change]]:
    """Blocks of changes that can all be carried out; a key may come and go within one."""
    keys, items, blocks = draw(KEYS), Items(), list[list[csmt.Change]]()
    for size in draw(st.lists(st.integers(0, 10), max_size=8)):
        blocks.append([])
        for key in (draw(st.sampled_from(keys)) for _ in range(size)):
            blocks[-1].append(csmt.Change(key, None if key in items else draw(VALUES)))
            items = changed(items, blocks[-1][-1:])
    return blocks


def test_the_vector() -> None:
    items = {b"hello": b"world", b"foo": b"bar", b"test": b"data"}
    root = "1e98af87b522eead4102425223ef5174599933b9dbe848fa0c4731553a31e6a6"
    found = csmt.root(items)
    assert found is not None and found.hex() == root
    assert tree_of(items).root() == found
    assert csmt.root({}) is None and csmt.Tree().root() is None


def test_keys_are_the_cbor_of_inputs() -> None:
    tx_id = bytes(range(32))
    assert csmt.txin_key(tx_id, 3).hex() == "825820" + tx_id.hex() + "03"
    assert csmt.txin_key(tx_id, 300).hex() == "825820" + tx_id.hex() + "19012c"


@given(ITEMS, st.randoms(use_true_random=False))
def test_the_root_is_as_defined_and_does_not_depend_on_the_order(items: Items, shuffler: random.Random) -> None:
    shuffled = list(items.items())
    shuffler.shuffle(shuffled)
    assert csmt.root(items) == tree_of(dict(shuffled)).root() == csmt_root(items)
    assert rows_of(items) == rows_of(dict(shuffled)), "rows depend on what is in the tree alone"


@given(chains())
def test_changes_of_stored_rows_give_the_tree_made_from_scratch(blocks: list[list[csmt.Change]]) -> None:
    """Each block is a batch that loads only the rows along its keys' paths."""
    items: Items = {}
    rows: dict[bytes, bytes] = {}
    for block in blocks:
        tree = csmt.Tree(along(rows, {key for key, _ in block}))
        [applied] = csmt.apply(tree, [block])
        items = changed(items, block)
        store(rows, applied.rows)
        if block:
            assert tree.root() == csmt_root(items)
        assert rows == rows_of(items)


@given(chains(), st.integers(0, 3))
def test_parts_folded_alone_and_combined_give_the_same_root_at_every_block(blocks: list[list[csmt.Change]], depth: int) -> None:
    bases = {csmt.part_of(key, depth) for block in blocks for key, _ in block}
    parts = {
        base: list(
            csmt.apply(csmt.Tree(base=base), ([c for c in block if csmt.part_of(c.key, depth) == base] for block in blocks))
        )
        for base in bases
    }
    items: Items = {}
    rows: dict[bytes, dict[bytes, bytes]] = {base: {} for base in bases}
    for number, block in enumerate(blocks):
        items = changed(items, block)
        assert csmt.combine(parts[base][number].top for base in bases) == csmt.root(items)
        for base in bases:
            store(rows[base], parts[base][number].rows)
            own = {key: value for key, value in items.items() if csmt.part_of(key, depth) == base}
            assert rows[base] == rows_of(own, base)
            assert csmt.Tree(rows[base], base).top() == parts[base][number].top, "a part's top is in its first row"


@given(ITEMS_AND_KEY, st.integers(0, 3))
def test_a_part_proves_with_the_tops_beside_it(given_items: tuple[Items, bytes], depth: int) -> None:
    items, key = given_items
    own, bases = csmt.part_of(key, depth), {csmt.part_of(other, depth) for other in items}
    trees = {base: tree_of({k: v for k, v in items.items() if csmt.part_of(k, depth) == base}, base) for base in {*bases, own}}
    beside = [tree.top() for base, tree in trees.items() if base != own]
    rows = {path: row for path, row in trees[own].changes().items() if row is not None}
    assert csmt.Tree(along(rows, {key}, own), own).prove(key, beside) == csmt.prove(items, key)


@given(ITEMS, st.sets(st.integers(0, 39)))
def test_deleting_what_was_inserted_restores_root_and_rows(both: Items, later: set[int]) -> None:
    more = {key: value for number, (key, value) in enumerate(both.items()) if number in later}
    items = {key: value for key, value in both.items() if key not in more}
    rows = rows_of(items)
    tree = csmt.Tree(dict(rows))
    blocks = [[csmt.Change(key, value) for key, value in more.items()], [csmt.Change(key, None) for key in more]]
    for applied in csmt.apply(tree, blocks):
        store(rows, applied.rows)
    assert (tree.root(), rows) == (csmt.root(items), rows_of(items))


@given(ITEMS_AND_KEY)
def test_changes_that_do_not_fit_are_refused_and_change_nothing(given_items: tuple[Items, bytes]) -> None:
    items, key = given_items
    tree = tree_of(items)
    root = tree.root()
    tree.changes()
    with pytest.raises(BadInput):
        list(csmt.apply(tree, [[csmt.Change(key, b"v" if key in items else None)]]))
    assert (tree.root(), tree.changes()) == (root, {})


@pytest.mark.parametrize(
    ("items", "key"),
    [
        ({b"ab": b"1"}, b"abc"),
        ({b"abc": b"1"}, b"ab"),
        ({b"abc": b"1", b"abd": b"2"}, b"ab"),
        ({b"ab": b"1", b"x": b"2"}, b"abc"),
    ],
)
def test_a_key_that_begins_another_key_is_refused(items: Items, key: bytes) -> None:
    tree = tree_of(items)
    calls = (lambda: tree.insert(key, b"v"), lambda: tree.prove(key), lambda: csmt.prove(items, key))
    for call in (*calls, lambda: csmt.root({**items, key: b"v"})):
        with pytest.raises(BadInput, match="prefix"):
            call()
    assert tree.root() == csmt.root(items)


@pytest.mark.parametrize("key", [b"", bytes(8192)])
def test_keys_without_a_path_are_refused(key: bytes) -> None:
    with pytest.raises(BadInput, match="bytes"):
        csmt.Tree().insert(key, b"v")
    with pytest.raises(BadInput, match="bytes"):
        csmt.root({key: b"v"})


def test_a_key_of_another_part_is_refused() -> None:
    with pytest.raises(BadInput, match="not under"):
        csmt.Tree(base=b"\x08").insert(b"\x70", b"v")
    with pytest.raises(BadInput, match="too short"):
        csmt.part_of(b"\x70", 2)


@given(ITEMS_AND_KEY)
def test_every_key_has_a_proof_that_it_is_there_or_that_it_is_not(given_items: tuple[Items, bytes]) -> None:
    items, key = given_items
    root, proof = csmt.root(items), csmt.prove(items, key)
    assert csmt.verify(root, key, items.get(key), proof)
    assert not csmt.verify(root, key, b"another", proof)
    assert not csmt.verify(blake(b"another root"), key, items.get(key), proof)
    assert csmt.verify(root, key, None, proof) == (key not in items)
    assert csmt.Tree(along(rows_of(items), {key})).prove(key) == proof, "the rows along the path suffice"
    assert csmt.Proof.from_json(proof.to_json()) == csmt.Proof.from_bytes(proof.to_bytes()) == proof


@given(ITEMS_AND_KEY, st.data())
def test_a_proof_of_absence_is_of_one_key_only(given_items: tuple[Items, bytes], data: st.DataObject) -> None:
    items, key = given_items
    proof = csmt.prove(items, key)
    if items and key not in items:
        assert not csmt.verify(csmt.root(items), data.draw(st.sampled_from(sorted(items))), None, proof)
        assert not csmt.verify(None, key, None, proof)


@given(ITEMS.filter(lambda items: len(items) > 1), st.data())
def test_no_node_shows_a_key_absent_that_is_there(items: Items, data: st.DataObject) -> None:
    """The honest proofs of all other keys, given out as if they showed that this one is absent."""
    key = data.draw(st.sampled_from(sorted(items)))
    for other in items:
        forged = csmt.Proof(csmt.prove(items, other).witness, bits_of(key))
        assert not csmt.verify(csmt.root(items), key, None, forged)


def test_the_bytes_of_proofs() -> None:
    items = {b"\x00": b"l", b"\x80": b"r"}
    shown = [[0] * 8, blake(b"l"), [[8, [[0] * 7, blake(b"r")]]], []]
    assert cbor2.loads(csmt.prove(items, b"\x00").to_bytes()) == shown
    assert cbor2.loads(csmt.prove(items, b"\x01").to_bytes()) == [1, [0] * 7 + [1], shown]
    assert csmt.prove({}, b"k").to_bytes() == cbor2.dumps([0])
    assert cbor2.loads(csmt.prove({b"\x05": b"v"}, b"\x05").to_bytes()) == [
        bits := [0, 0, 0, 0, 0, 1, 0, 1],
        blake(b"v"),
        [],
        bits,
    ]


def test_absence_is_shown_by_the_node_that_the_path_leaves_not_by_a_leaf_below_it() -> None:
    proof = csmt.prove({b"\x00\x01": b"1", b"\x00\x02": b"2"}, b"\x80\x00")
    assert proof.witness is not None and proof.witness.node.path == Bits(14, 0) and not proof.witness.steps


def test_a_node_is_the_same_read_back() -> None:
    for node in (Node(0, 0, bytes(32)), Node(9, 0b100000001, blake(b"x"))):
        assert Node.from_bytes(node.to_bytes()) == node
    for wrong in (b"", b"\x00\x01\x40\x00\x20" + bytes(32), b"\xff\xff", Node(3, 1, bytes(32)).to_bytes() + b"\x00"):
        with pytest.raises(BadInput):
            Node.from_bytes(wrong)


def accepted(root: bytes | None, key: bytes, value: bytes | None, proof: bytes) -> bool:
    try:
        return csmt.verify(root, key, value, csmt.Proof.from_bytes(proof))
    except BadInput:
        return False


@settings(max_examples=60)
@given(ITEMS_AND_KEY, st.data())
def test_a_proof_with_any_bit_changed_is_refused(given_items: tuple[Items, bytes], data: st.DataObject) -> None:
    items, key = given_items
    root, proof = csmt.root(items), csmt.prove(items, key).to_bytes()
    for _ in range(20):
        wrong = bytearray(proof)
        wrong[data.draw(st.integers(0, len(proof) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert not accepted(root, key, items.get(key), bytes(wrong))


def test_every_single_bit_of_a_proof_matters() -> None:
    items = dict.fromkeys(SHORT[:-6], b"v")
    root = csmt.root(items)
    for key in (SHORT[0], SHORT[-1], SHORT[17]):
        data = csmt.prove(items, key).to_bytes()
        assert accepted(root, key, items.get(key), data)
        for bit in range(8 * len(data)):
            wrong = bytearray(data)
            wrong[bit >> 3] ^= 1 << (bit & 7)
            assert not accepted(root, key, items.get(key), bytes(wrong)), f"{key!r} with bit {bit} changed"


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_proof_or_bad_input(data: bytes) -> None:
    assert not accepted(csmt.root({b"k": b"v"}), b"k", b"v", data) or csmt.Proof.from_bytes(data).to_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        b"\x84" * 100_000,
        b"\x83\x01" * 100_000,
        b"\x84\x9b" + b"\xff" * 8,
        b"\x84\x99\xff\xff" + bytes(1000),
        b"\x84\x81\x00\x5b" + b"\xff" * 8,
        b"\x84\x81\x00\x58\x20" + bytes(32) + b"\x9b" + b"\xff" * 8,
        b"\x84\x81\x00\x58\x20" + bytes(32) + b"\x81\x82\x1b" + b"\xff" * 8 + b"\x82\x80\x58\x20" + bytes(32) + b"\x80",
        b"\x84\x81\x02\x58\x20" + bytes(32) + b"\x80\x80",
        bytes(2 << 20),
    ],
)
def test_hostile_bytes_are_refused_without_much_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            csmt.Proof.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_longest_proof_that_is_taken_is_verified_in_bounded_time() -> None:
    """Steps as many as bytes allow, over the longest path there is."""
    step = b"\x82\x01\x82\x80\x58\x20" + bytes(32)
    steps = ((1 << 20) - 2 * 65_535 - 100) // len(step)
    head = b"\x84\x99\xff\xff" + bytes(65_535) + b"\x58\x20" + bytes(32) + b"\x99" + steps.to_bytes(2, "big")
    jump = 65_535 - steps
    proof = csmt.Proof.from_bytes(head + step * steps + b"\x99" + jump.to_bytes(2, "big") + bytes(jump))
    assert proof.witness is not None and proof.witness.root() != bytes(32)


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], {}, {"type": "inclusion"}, {"type": "other"}),
        {"type": "inclusion", "path": "012", "value": "00" * 32, "steps": [], "root_jump": "012"},
        {"type": "inclusion", "path": "01", "value": "00" * 31, "steps": [], "root_jump": "01"},
        {"type": "inclusion", "path": "01", "value": "00" * 32, "steps": [], "root_jump": "0"},
        {"type": "inclusion", "path": "01", "value": "00" * 32, "steps": [{}], "root_jump": ""},
        {
            "type": "inclusion",
            "path": "0",
            "value": "0" * 64,
            "steps": [{"consumed": 2, "jump": "", "value": "0" * 64}],
            "root_jump": "",
        },
        {
            "type": "inclusion",
            "path": "0",
            "value": "0" * 64,
            "steps": [{"consumed": True, "jump": "", "value": "0" * 64}],
            "root_jump": "",
        },
        orjson.loads("[" * 1000 + "]" * 1000),
        {"type": "inclusion", "path": "0", "value": "0" * 64, "steps": [orjson.loads("[" * 1000 + "]" * 1000)], "root_jump": ""},
        {"type": "exclusion", "absent": "x", "path": "01", "value": "00" * 32, "steps": [], "root_jump": "01"},
    ],
)
def test_json_that_is_no_proof_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        csmt.Proof.from_json(value)


@given(ITEMS.filter(lambda items: len(items) > 4), st.data())
def test_a_damaged_row_is_noticed_by_whoever_reads_it(items: Items, data: st.DataObject) -> None:
    rows, root = rows_of(items), csmt.root(items)
    path = data.draw(st.sampled_from(sorted(rows)))
    wrong = bytearray(rows[path])
    wrong[data.draw(st.integers(0, len(wrong) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        tree = csmt.Tree({**rows, path: bytes(wrong)})
        noticed = tree.root() != root
        for key in items:
            tree.value_hash(key)
    except BrokenPromise:
        noticed = True
    assert noticed


@pytest.mark.parametrize(
    "child",
    [b"\x20\x00" + bytes(8192) + bytes(32), b"\xf0\x00" + bytes(0xF000) + b"\x21\x01" + bytes(32)],
    ids=["a leaf", "a branch"],
)
def test_a_row_with_a_longer_path_than_any_tree_has_is_damaged(child: bytes) -> None:
    masks = b"\x10" if child[0] == 0x20 else b"\x11"
    row = masks + len(child).to_bytes(2, "big") + child + bytes(3)
    with pytest.raises(BrokenPromise, match="is damaged"):
        csmt.Tree({b"": row}).root()


def test_a_deep_tree_needs_no_recursion() -> None:
    """Keys that part one bit later each time."""
    keys = [bytes(at) + b"\x80" + bytes(1500 - at) for at in range(1500)]
    items = dict.fromkeys(keys, b"v")
    tree = tree_of(items)
    assert tree.root() == csmt.root(items)
    assert csmt.verify(tree.root(), keys[-1], b"v", tree.prove(keys[-1]))
