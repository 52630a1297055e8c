"""The registry of each chain in a batch: from the file that the chain names, checked against what the lake holds of it.

A node is in silver.shard_nodes from the block on in which it was registered, or from the first block of the chain. What was
processed once rests on the nodes of that time, so a file that says something else about the past is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from chainlake.encoding import to_hex
from chainlake.errors import BadInput, BrokenPromise, some_of
from chainlake.lake.stage import Batch
from chainlake.shards.registry import NodeRecord, NodeRegistry, read_registry

NODES_DDL = "_chain string, _height bigint, permanent_index int, address binary, from_height bigint"

SNAPSHOT = "snapshot"
"""Option of a chain that begins with a snapshot of this height."""

NodeRow = tuple[str, int, int, bytes, int]


class Known(NamedTuple):
    """Registries by chain, and the rows of silver.shard_nodes that the batch adds."""

    registries: dict[str, NodeRegistry]
    rows: list[NodeRow]


def registries_of(batch: Batch) -> Known:
    """The registry of every chain in the batch."""
    files = read_files({chain: batch.options[chain].get("registry", "") for chain in batch.ranges})
    held = _held(batch)
    known = Known({}, [])
    for chain, (low, high) in batch.ranges.items():
        path = batch.options[chain].get("registry", "")
        registry = files[path] if path else NodeRegistry(held[chain])
        first = batch.snapshot.ledger.of("silver.shards", chain).first_height()
        if first is None and SNAPSHOT in batch.options[chain]:
            raise _broken(chain, f"{chain} begins with a snapshot that is not imported yet: run lake snapshot import again")
        base = low if first is None else first
        if first is not None:
            check_past(chain, path, held[chain], (one for one in registry.records if holds_from(one, base) <= low))
        known.registries[chain] = registry
        known.rows.extend(
            (chain, holds_from(one, base), one.permanent_index, one.address, one.from_height)
            for one in registry.records
            if low < holds_from(one, base) <= high
        )
    return known


def read_files(paths: Mapping[str, str]) -> dict[str, NodeRegistry]:
    """The registries that chains name. A file that many chains share is read once; one that is no use stops these alone."""
    files = {}
    for path in sorted(set(paths.values()) - {""}):
        with given_for([chain for chain, own in paths.items() if own == path]):
            files[path] = read_registry(path)
    return files


@contextmanager
def given_for(chains: Sequence[str]) -> Iterator[None]:
    """What is wrong with a file is told of the chains that name it; the others of the lane go on."""
    try:
        yield
    except BadInput as error:
        named = BadInput(f"{some_of(chains)}: {error}")
        named.chains = chains
        raise named from None


def holds_from(record: NodeRecord, base: int) -> int:
    """The block of the lake from which a node is there; `base` is the height before its first block."""
    return max(record.from_height, base + 1)


def check_past(chain: str, path: str, held: Iterable[NodeRecord], given: Iterable[NodeRecord]) -> None:
    """`BrokenPromise` if a registry says something else about blocks that were processed."""
    ours, theirs = set(held), set(given)
    wrong = sorted(ours ^ theirs, key=lambda one: one.permanent_index)
    if wrong:
        one, what = wrong[0], "was in" if wrong[0] in ours else "was not in"
        raise _broken(
            chain,
            f"{chain}: node {to_hex(one.address)} (index {one.permanent_index}, from block {one.from_height}) {what} "
            f"the registry {path} when those blocks were processed: mend the file, or roll silver.shards back to before them",
        )


def _broken(chain: str, reason: str) -> BrokenPromise:
    """A promise that one chain of the lane broke; the others go on."""
    error = BrokenPromise(reason)
    error.chains = [chain]
    return error


def _held(batch: Batch) -> dict[str, list[NodeRecord]]:
    held: dict[str, list[NodeRecord]] = defaultdict(list)
    rows = batch.state("silver.shard_nodes").select("_chain", "address", "permanent_index", "from_height")
    for chain, address, index, height in rows.collect():
        held[chain].append(NodeRecord(bytes(address), index, height))
    return held
