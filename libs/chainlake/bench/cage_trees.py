"""The trees of the cage by themselves: operations and proofs a second, from rows as tables keep them, for trees of all sizes."""

import random
import time
from collections.abc import Callable, Iterator

from chainlake.bench.report import Result
from chainlake.merkle import csmt, mpf
from chainlake.merkle.mpf import Operation

REFERENCE = "reference in JavaScript, as published"
INSERTS, PROOFS = 770.0, 1_500.0
BATCH = 2_000


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
    seconds = _timed(lambda: [_insert(trie, n) for n in range(count)])
    yield Result("trie, single inserts, a root after each", count / seconds, "1/s", REFERENCE, INSERTS, higher_is_better=True)
    keys = [_key(n) for n in random.Random(1).sample(range(count), min(count, BATCH))]
    seconds = _timed(lambda: [trie.prove(key) for key in keys])
    yield Result("trie, proofs", len(keys) / seconds, "1/s", REFERENCE, PROOFS, higher_is_better=True)
    proofs = [trie.prove(key) for key in keys]
    root = trie.root()
    seconds = _timed(lambda: [mpf.verify(root, key, b"value", proof) for key, proof in zip(keys, proofs, strict=True)])
    yield Result("trie, proofs verified", len(keys) / seconds, "1/s", higher_is_better=True)


def _trie_of(size: int) -> Iterator[Result]:
    """A batch of updates of a trie of so many keys: the rows along their paths are read, and the changed ones written."""
    trie = mpf.Trie()
    seconds = _timed(lambda: _filled(trie, size))
    name = f"trie of {size:,} keys"
    yield Result(f"{name}, all inserted in a batch", size / seconds, "1/s", REFERENCE, INSERTS, higher_is_better=True)
    stored = {path: row for path, row in trie.changes().items() if row is not None}
    root = trie.root()
    chosen = random.Random(2).sample(range(size), min(size // 2, BATCH))
    operations = [Operation(_key(n), b"value", b"another") for n in chosen]

    def batch() -> None:
        own = {path: stored[path] for one in operations for path in mpf.row_paths(one.key)[:12] if path in stored}
        (done,) = mpf.apply(mpf.Trie(own, root), [operations])
        assert done.rows

    rate = len(operations) / _timed(batch)
    yield Result(f"{name}, updated in a batch, from rows to rows", rate, "1/s", REFERENCE, INSERTS, higher_is_better=True)


def _utxos_of(size: int) -> Iterator[Result]:
    """The same for the UTxO tree: half of the batch is new, half is spent."""
    tree = csmt.Tree(None, csmt.part_of(_place(0), 6))
    places = [_place(n) for n in range(size)]
    seconds = _timed(lambda: _spendable(tree, places))
    name = f"UTxO set of {size:,}"
    yield Result(f"{name}, all inserted in a batch", size / seconds, "1/s", higher_is_better=True)
    stored = {path: row for path, row in tree.changes().items() if row is not None}
    changes = [csmt.Change(_place(n), None) for n in random.Random(3).sample(range(size), BATCH // 2)]
    changes += [csmt.Change(_place(size + n), b"output") for n in range(BATCH // 2)]
    base = csmt.part_of(_place(0), 6)

    def batch() -> None:
        own = {path: stored[path] for one in changes for path in csmt.row_paths(one.key, base)[:12] if path in stored}
        (done,) = csmt.apply(csmt.Tree(own, base), [changes])
        assert done.rows

    yield Result(f"{name}, changed in a batch, from rows to rows", len(changes) / _timed(batch), "1/s", higher_is_better=True)


def _insert(trie: mpf.Trie, number: int) -> bytes:
    trie.insert(_key(number), b"value")
    return trie.root()


def _filled(trie: mpf.Trie, size: int) -> None:
    for number in range(size):
        trie.insert(_key(number), b"value")
    trie.root()


def _spendable(tree: csmt.Tree, places: list[bytes]) -> None:
    for place in places:
        tree.insert(place, b"output")
    tree.root()


def _key(number: int) -> bytes:
    return b"key %d" % number


def _place(number: int) -> bytes:
    return csmt.txin_key(mpf.root({b"%d" % number: b""}), number % 3)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
