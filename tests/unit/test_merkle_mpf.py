"""The Merkle Patricia Forestry against its definition, written once more and naively; its rows; its proofs, also hostile ones."""

import itertools
import random
import tracemalloc
from collections.abc import Iterator, Mapping

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle import mpf
from chainlake.merkle.mpf_proof import BranchStep, ForkStep, LeafStep, climb
from chainlake.merkle.radix_rows import nibbles
from tests.unit.merkle_by_definition import blake, mpf_root

Items = dict[bytes, bytes]


def crowded() -> list[bytes]:
    """Keys most of whose hashes begin alike, so that a small trie is deep, with prefixes, and a few that do not."""
    hashed = [(blake(b"%d" % number).hex(), b"%d" % number) for number in range(12_000)]
    return [key for path, key in hashed if path.startswith(("a7", "a31", "0f0"))] + [key for _, key in hashed[:12]]


KEYS = crowded()
VALUES = st.sampled_from([b"", b"v", b"w" * 70])
ITEMS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=40)
ONE_OF_THEM = st.sampled_from(KEYS)


def rows_of(items: Items) -> dict[bytes, bytes]:
    return {path: row for path, row in mpf.Trie.of(items).changes().items() if row is not None}


def store(rows: dict[bytes, bytes], changes: Mapping[bytes, bytes | None]) -> None:
    for path, row in changes.items():
        if row is None:
            del rows[path]
        else:
            rows[path] = row


def along(rows: Mapping[bytes, bytes], *keys: bytes) -> dict[bytes, bytes]:
    """Only what `row_paths` asks for."""
    return {path: rows[path] for key in keys for path in mpf.row_paths(key) if path in rows}


def changed(items: Items, operation: mpf.Operation) -> Items:
    kept = {key: value for key, value in items.items() if key != operation.key}
    return kept if operation.new is None else {**kept, operation.key: operation.new}


@st.composite
def histories(draw: st.DrawFn) -> list[list[mpf.Operation]]:
    """Groups of operations that can all be carried out."""
    items: Items = {}
    groups: list[list[mpf.Operation]] = []
    for size in draw(st.lists(st.integers(0, 8), max_size=8)):
        groups.append([])
        for _ in range(size):
            key = draw(ONE_OF_THEM)
            new = draw(st.one_of(st.none(), VALUES)) if key in items else draw(VALUES)
            groups[-1].append(mpf.Operation(key, items.get(key), new))
            items = changed(items, groups[-1][-1])
    return groups


def test_the_short_vectors() -> None:
    assert mpf.root({}) == mpf.EMPTY == bytes(32)
    trie = mpf.Trie()
    trie.insert(b"k1", b"v1")
    assert trie.root().hex() == "51142f22ba3576be090b2dca505687be816e7829352ef97d3671bf974bc43719"
    trie.insert(b"k2", b"v2")
    assert trie.root().hex() == "5a72ccdd24fe693d6c10aaacd4635f5daa94dbd881f3340a985634e7aaed3c7f"


@given(ITEMS, st.randoms(use_true_random=False))
def test_the_root_is_as_defined_and_does_not_depend_on_the_order(items: Items, shuffler: random.Random) -> None:
    shuffled = list(items.items())
    shuffler.shuffle(shuffled)
    assert mpf.root(items) == mpf.root(dict(shuffled)) == mpf_root(items)
    assert rows_of(items) == rows_of(dict(shuffled)), "rows depend on what is in the trie alone"


@given(histories())
def test_operations_on_stored_rows_give_the_trie_made_from_scratch(groups: list[list[mpf.Operation]]) -> None:
    """Each group is a batch that loads only the rows along its keys' paths."""
    items: Items = {}
    rows: dict[bytes, bytes] = {}
    for group in groups:
        trie = mpf.Trie(along(rows, *(operation.key for operation in group)), mpf.root(items) if group else None)
        for operation in group:
            [applied] = mpf.apply(trie, [[operation]])
            items = changed(items, operation)
            store(rows, applied.rows)
            assert applied.root == mpf_root(items)
            assert rows == rows_of(items)


@given(histories())
def test_one_batch_of_many_groups_gives_the_same_roots_and_rows(groups: list[list[mpf.Operation]]) -> None:
    items: Items = {}
    rows: dict[bytes, bytes] = {}
    for group, applied in zip(groups, mpf.apply(mpf.Trie(), groups), strict=True):
        for operation in group:
            items = changed(items, operation)
        store(rows, applied.rows)
        assert (applied.root, rows) == (mpf.root(items), rows_of(items))


@given(ITEMS, st.dictionaries(ONE_OF_THEM, VALUES, max_size=20))
def test_deleting_what_was_inserted_restores_root_and_rows(items: Items, more: Items) -> None:
    more = {key: value for key, value in more.items() if key not in items}
    rows = rows_of(items)
    trie = mpf.Trie(dict(rows))
    inserts = [mpf.Operation(key, None, value) for key, value in more.items()]
    deletes = [mpf.Operation(key, value, None) for key, value in more.items()]
    for applied in mpf.apply(trie, [inserts, deletes]):
        store(rows, applied.rows)
    assert (trie.root(), rows) == (mpf.root(items), rows_of(items))


@given(ITEMS, ONE_OF_THEM)
def test_operations_that_do_not_fit_are_refused_and_change_nothing(items: Items, key: bytes) -> None:
    trie = mpf.Trie.of(items)
    before = (trie.root(), trie.changes())
    refused = [mpf.Operation(key, None, None), mpf.Operation(key, b"wrong", None), mpf.Operation(key, b"wrong", b"x")]
    refused += (
        [mpf.Operation(key, None, b"x")] if key in items else [mpf.Operation(key, b"v", None), mpf.Operation(key, b"v", b"w")]
    )
    for operation in refused:
        with pytest.raises(BadInput):
            trie.apply(operation)
    assert (trie.root(), trie.changes()) == (before[0], {})


@given(ITEMS, ONE_OF_THEM)
def test_every_key_has_a_proof_that_it_is_there_or_that_it_is_not(items: Items, key: bytes) -> None:
    root, proof = mpf.root(items), mpf.prove(items, key)
    assert mpf.verify(root, key, items.get(key), proof)
    assert not mpf.verify(root, key, b"another", proof)
    assert not mpf.verify(blake(root), key, items.get(key), proof)
    assert mpf.verify(root, key, None, proof) == (key not in items)
    assert mpf.Trie(along(rows_of(items), key), root).prove(key) == proof, "the rows along the path suffice"
    assert mpf.Proof.from_json(proof.to_json()) == mpf.Proof.from_bytes(proof.to_bytes()) == proof


@given(ITEMS, ONE_OF_THEM)
def test_the_proof_of_absence_is_the_one_that_the_key_would_have(items: Items, key: bytes) -> None:
    without = {other: value for other, value in items.items() if other != key}
    proof = mpf.prove(without, key)
    assert proof == mpf.prove({**without, key: b"v"}, key)
    assert mpf.verify(mpf.root({**without, key: b"v"}), key, b"v", proof)


def all_proofs() -> Iterator[tuple[Items, bytes, mpf.Proof]]:
    """Of every key, in a full trie and in a sparse one."""
    for present in (KEYS[:-3], KEYS[:9]):
        items = dict.fromkeys(present, b"v")
        trie = mpf.Trie.of(items)
        yield from ((items, key, trie.prove(key)) for key in KEYS)


def test_all_kinds_of_steps_occur_here_with_and_without_a_prefix() -> None:
    kinds = {(type(step), step.skip > 0) for _, _, proof in all_proofs() for step in proof.steps}
    assert kinds == {(kind, skips) for kind in (BranchStep, ForkStep, LeafStep) for skips in (False, True)}


def test_the_hashes_on_the_way_up_end_with_the_root() -> None:
    for items, key, proof in all_proofs():
        hashes = climb(key, items.get(key), proof)
        assert hashes[-1] == mpf.root(items) and len(hashes) - len(proof.steps) in ((1,) if key in items else (0, 1))
    assert climb(b"k", None, mpf.Proof((LeafStep(0, blake(b"k"), blake(b"v")),))) == []


def under(prefix: str, but: str = "-") -> list[bytes]:
    return [key for key in KEYS if blake(key).hex().startswith(prefix) and not blake(key).hex().startswith(but)]


def test_a_fork_below_a_prefix_proves_absence() -> None:
    """Two keys share more nibbles with each other than with the absent one, which shares some with both."""
    alike = itertools.groupby(sorted(under("a7"), key=lambda key: blake(key).hex()), lambda key: blake(key).hex()[:3])
    one, two, *_ = next(keys for _, group in alike if len(keys := list(group)) > 1)
    absent = under("a7", but=blake(one).hex()[:3])[0]
    items = {one: b"1", two: b"2"}
    proof = mpf.prove(items, absent)
    assert isinstance(proof.steps[0], ForkStep) and proof.steps[0].skip == 2
    assert mpf.verify(mpf.root(items), absent, None, proof)
    assert proof.to_bytes().startswith(bytes.fromhex("9fd87a9f02d8799f"))
    trie = mpf.Trie.of({**items, absent: b"3"})
    trie.delete(absent, b"3")
    assert trie.root() == mpf.root(items), "the branch merged upward"


@settings(max_examples=60)
@given(ITEMS.filter(lambda items: len(items) > 1), ONE_OF_THEM, st.data())
def test_a_proof_with_any_bit_changed_is_refused(items: Items, key: bytes, data: st.DataObject) -> None:
    root, proof = mpf.root(items), mpf.prove(items, key).to_bytes()
    for _ in range(20):
        wrong = bytearray(proof)
        wrong[data.draw(st.integers(0, len(proof) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert not accepted(root, key, items.get(key), bytes(wrong))


def accepted(root: bytes, key: bytes, value: bytes | None, proof: bytes) -> bool:
    try:
        return mpf.verify(root, key, value, mpf.Proof.from_bytes(proof))
    except BadInput:
        return False


def test_every_single_bit_of_a_proof_of_each_kind_matters() -> None:
    seen = set[tuple[bool, type, bool]]()
    for items, key, proof in all_proofs():
        kinds = {(key in items, type(step), step.skip > 0) for step in proof.steps}
        if kinds <= seen:
            continue
        seen |= kinds
        root, data = mpf.root(items), proof.to_bytes()
        assert accepted(root, key, items.get(key), data)
        for bit in range(8 * len(data)):
            wrong = bytearray(data)
            wrong[bit >> 3] ^= 1 << (bit & 7)
            assert not accepted(root, key, items.get(key), bytes(wrong)), f"{key!r} with bit {bit} changed"
    assert len({kind[1:] for kind in seen}) == 6


def test_a_key_cannot_be_proven_absent_by_the_branch_it_is_in() -> None:
    """The honest proof that a key is absent elsewhere names the top branch; it must not pass for a key under that branch."""
    items = dict.fromkeys(under("a7"), b"v")
    proof = mpf.prove(items, under("0f0")[0])
    assert isinstance(proof.steps[0], ForkStep) and len(proof.steps) == 1
    assert not any(mpf.verify(mpf.root(items), key, None, proof) for key in items)


@given(ITEMS.filter(lambda items: len(items) > 1), ONE_OF_THEM)
def test_no_honest_proof_of_another_key_shows_a_key_absent_that_is_there(items: Items, other: bytes) -> None:
    root, proof = mpf.root(items), mpf.prove(items, other)
    assert not any(mpf.verify(root, key, None, proof) for key in items)


def test_a_key_cannot_be_proven_absent_by_its_own_leaf() -> None:
    digest = blake(b"k")
    for skip in (0, 5, 63):
        assert not mpf.verify(mpf.root({b"k": b"v"}), b"k", None, mpf.Proof((LeafStep(skip, digest, blake(b"v")),)))


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_proof_or_bad_input(data: bytes) -> None:
    assert not accepted(mpf.root({b"k": b"v"}), b"k", b"v", data) or mpf.Proof.from_bytes(data).to_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        b"\x9f" * 16_000,
        b"\xd8\x79\x9f" * 5_000,
        b"\x9b" + b"\xff" * 8,
        b"\x9f\xd8\x79\x9f\x00\x5f\x5b" + b"\xff" * 8,
        b"\x9f\xd8\x7b\x9f\x00\x5a\xff\xff\xff\xff",
        b"\x9f" + b"\xd8\x7b\x9f\x00\x58\x20" * 2_000,
        b"\x9f" + (b"\xd8\x7b\x9f\x00" + (b"\x58\x20" + bytes(32)) * 2 + b"\xff") * 200 + b"\xff",
        bytes(1 << 20),
    ],
)
def test_hostile_bytes_are_refused_without_much_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            mpf.Proof.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value",
    [
        *({}, None, "x", [1], [{}], [{"type": "leaf", "skip": 0}], [{"type": "leaf"}] * 65),
        [{"type": "branch", "skip": True, "neighbors": "00" * 128}],
        [{"type": "fork", "skip": 0, "neighbor": {"nibble": True, "prefix": "", "root": "00" * 32}}],
        orjson.loads("[" * 1000 + "]" * 1000),
        [{"type": orjson.loads("[" * 1000 + "]" * 1000)}],
        [{"type": "branch", "skip": -1, "neighbors": "00" * 128}],
        [{"type": "branch", "skip": 1 << 70, "neighbors": "00" * 128}],
        [{"type": "branch", "skip": 0, "neighbors": "zz"}],
        [{"type": "fork", "skip": 0, "neighbor": {"nibble": 16, "prefix": "", "root": "00" * 32}}],
        [{"type": "fork", "skip": 0, "neighbor": {"nibble": 1, "prefix": "10", "root": "00" * 32}}],
    ],
)
def test_json_that_is_no_proof_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        mpf.Proof.from_json(value)


@given(ITEMS.filter(lambda items: len(items) > 4), st.data())
def test_a_damaged_row_is_noticed_by_whoever_reads_it(items: Items, data: st.DataObject) -> None:
    rows, root = rows_of(items), mpf.root(items)
    path = data.draw(st.sampled_from(sorted(rows)))
    wrong = bytearray(rows[path])
    wrong[data.draw(st.integers(0, len(wrong) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = {**rows, path: bytes(wrong)}
    with pytest.raises(BrokenPromise):
        trie = mpf.Trie(damaged, root)
        for key in items:
            trie.value_hash(key)


@given(ITEMS.filter(lambda items: len(items) > 4), st.data())
def test_a_damaged_row_is_noticed_again_by_whoever_asks_again(items: Items, data: st.DataObject) -> None:
    rows, root = rows_of(items), mpf.root(items)
    path = data.draw(st.sampled_from(sorted(rows)))
    wrong = bytearray(rows[path])
    wrong[data.draw(st.integers(0, len(wrong) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        trie = mpf.Trie({**rows, path: bytes(wrong)}, root)
    except BrokenPromise:
        return
    refused = [key for key in items if is_refused(trie, key)]
    assert refused and refused == [key for key in items if is_refused(trie, key)]


def is_refused(trie: mpf.Trie, key: bytes) -> bool:
    try:
        trie.value_hash(key)
    except BrokenPromise:
        return True
    return False


def test_a_missing_row_and_rows_of_another_root_are_named() -> None:
    items = {key: b"v" for key in under("a7")}
    rows = rows_of(items)
    deepest = max(rows, key=len)
    gone = {path: row for path, row in rows.items() if path != deepest}
    key = next(key for key in items if nibbles(blake(key)).startswith(deepest))
    with pytest.raises(BrokenPromise, match="is missing"):
        mpf.Trie(gone).prove(key)
    with pytest.raises(BrokenPromise, match="not 0x00000000"):
        mpf.Trie(rows, bytes(32))


class Counted(dict[bytes, bytes]):
    """Rows that know how many of them were read."""

    reads = 0

    def get(self, path: bytes, default: object = None) -> bytes | None:  # type: ignore[override]
        self.reads += 1
        return super().get(path)


def test_the_cost_of_an_update_is_bounded_by_depth() -> None:
    trie = mpf.Trie.of({b"%d" % number: b"v" for number in range(4_000)})
    rows = Counted({path: row for path, row in trie.changes().items() if row is not None})
    assert len(rows) > 1_000
    later = mpf.Trie(rows)
    later.insert(b"new", b"v")
    later.delete(b"17", b"v")
    later.root()
    assert rows.reads <= 12 and len(later.changes()) <= 12
