"""The trees of the cage by themselves: operations and proofs a second, from rows as tables keep them, for trees of all sizes.

Seconds are those of processor time, since one core does it all. As in Spark's tasks, nothing searches for cycles meanwhile.
"""

import random
from collections.abc import Iterator

from chainlake.bench.report import Result, timed_on_core
from chainlake.collector import without_collector
from chainlake.merkle import csmt, mpf
from chainlake.merkle.mpf import Operation

REFERENCE = "reference in JavaScript, as published"
INSERTS, PROOFS = 770.0, 1_500.0
BATCH, SINGLE = 2_000, 200


@without_collector
def trees(quick: bool) -> Iterator[Result]:
    """All measurements of trees."""
    yield from _single(2_000 if quick else 20_000)
    for size in (1_000, 20_000) if quick else (1_000, 100_000, 1_000_000):
        yield from _trie_of(size)
    for size in (10_000,) if quick else (10_000, 1_000_000):
        yield from _utxos_of(size)


def _single(count: int) -> Iterator[Result]:
    """One operation at a time with a root after each; then proofs."""
    trie = mpf.Trie()
    seconds = timed_on_core(lambda: [_insert(trie, n) for n in range(count)], 1)
    yield Result("trie, single inserts, a root after each", count / seconds, "1/s", REFERENCE, INSERTS, higher_is_better=True)
    keys = [_key(n) for n in random.Random(1).sample(range(count), min(count, BATCH))]
    seconds = timed_on_core(lambda: [trie.prove(key) for key in keys])
    yield Result("trie, proofs", len(keys) / seconds, "1/s", REFERENCE, PROOFS, higher_is_better=True)
    proofs = [trie.prove(key) for key in keys]
    root = trie.root()
    seconds = timed_on_core(lambda: [mpf.verify(root, key, b"value", proof) for key, proof in zip(keys, proofs, strict=True)])
    yield Result("trie, proofs verified", len(keys) / seconds, "1/s", higher_is_better=True)


def _trie_of(size: int) -> Iterator[Result]:
    """A batch of updates of a trie of so many keys: the rows along their paths are read, and the changed ones written."""
    seconds, root, stored = _trie_rows(size)
    name = f"trie of {size:,} keys"
    yield Result(f"{name}, all inserted in a batch", size / seconds, "1/s", REFERENCE, INSERTS, higher_is_better=True)
    chosen = random.Random(2).sample(range(size), min(size // 2, BATCH))
    operations = [Operation(_key(n), b"value", b"another") for n in chosen]

    def batch() -> None:
        (done,) = mpf.apply(mpf.Trie(stored, root), [operations])
        assert done.rows

    def alone() -> None:
        for one in operations[:SINGLE]:
            (done,) = mpf.apply(mpf.Trie(stored, root), [[one]])
            assert done.rows

    rate = len(operations) / timed_on_core(batch)
    yield Result(f"{name}, updated in a batch, from rows to rows", rate, "1/s", REFERENCE, INSERTS, higher_is_better=True)
    rate = min(SINGLE, len(operations)) / timed_on_core(alone)
    yield Result(f"{name}, updated one by one, from rows to rows", rate, "1/s", REFERENCE, INSERTS, higher_is_better=True)


def _utxos_of(size: int) -> Iterator[Result]:
    """The same for the UTxO tree: half of the batch is new, half is spent."""
    base = csmt.part_of(_place(0), 6)
    seconds, stored = _utxo_rows(size, base)
    name = f"UTxO set of {size:,}"
    yield Result(f"{name}, all inserted in a batch", size / seconds, "1/s", higher_is_better=True)
    changes = [csmt.Change(_place(n), None) for n in random.Random(3).sample(range(size), BATCH // 2)]
    changes += [csmt.Change(_place(size + n), b"output") for n in range(BATCH // 2)]

    def batch() -> None:
        (done,) = csmt.apply(csmt.Tree(stored, base), [changes])
        assert done.rows

    yield Result(
        f"{name}, changed in a batch, from rows to rows", len(changes) / timed_on_core(batch), "1/s", higher_is_better=True
    )


def _insert(trie: mpf.Trie, number: int) -> bytes:
    trie.insert(_key(number), b"value")
    return trie.root()


def _trie_rows(size: int) -> tuple[float, bytes, dict[bytes, bytes]]:
    """How long it took to fill a trie, its root and its rows. The trie itself is gone: what comes next starts from rows."""
    trie = mpf.Trie()

    def fill() -> bytes:
        for number in range(size):
            trie.insert(_key(number), b"value")
        return trie.root()

    return timed_on_core(fill, 1), trie.root(), {path: row for path, row in trie.changes().items() if row is not None}


def _utxo_rows(size: int, base: bytes) -> tuple[float, dict[bytes, bytes]]:
    """The same for the UTxO tree."""
    places, tree = [_place(number) for number in range(size)], csmt.Tree(None, base)

    def fill() -> bytes | None:
        for place in places:
            tree.insert(place, b"output")
        return tree.root()

    return timed_on_core(fill, 1), {path: row for path, row in tree.changes().items() if row is not None}


def _key(number: int) -> bytes:
    return b"key %d" % number


def _place(number: int) -> bytes:
    return csmt.txin_key(mpf.root({b"%d" % number: b""}), number % 3)
