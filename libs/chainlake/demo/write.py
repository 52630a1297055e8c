"""All demo chains on disk, ready for `lake ingest`.

Chains only grow: a lake may have taken in all of a file, and a shorter one would contradict it. So the sizes that were written
are kept beside the chains.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chainlake.demo import cage, cardano, comet, evm, raft, river, write_pieces
from chainlake.errors import BadInput
from chainlake.lake.progress import Progress

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"logs": 20, "shards": 10, "cage": 20, "replica": 10, "sync": 2},
    "small": {"logs": 200, "shards": 100, "cage": 150, "replica": 60, "sync": 5},
    "medium": {"logs": 2_000, "shards": 1_000, "cage": 2_000, "replica": 600, "sync": 10},
    "large": {"logs": 10_000, "shards": 5_000, "cage": 20_000, "replica": 5_000, "sync": 20},
}
USUAL = "small"
SIZES_FILE = "sizes.json"


@dataclass(frozen=True)
class DemoChain:
    """A chain that can be ingested. `blocks` is its length, without the blocks of abandoned branches."""

    name: str
    kind: str
    domain: str
    path: Path
    options: dict[str, str]
    blocks: int


def write_demo(directory: Path, domain: str | None = None, size: str | None = None) -> list[DemoChain]:
    """Writes the chains of a domain, or all. Again it writes the same bytes. Without a size they keep theirs, or are small."""
    sizes = _sizes(directory, domain, size)
    plan = [(writer, SIZES[chosen][name]) for name, chosen in sizes.items() for writer in WRITERS[name]]
    progress = Progress("demo", len(plan), unit="chains")
    try:
        chains = [writer(directory.absolute(), count) for writer, count in progress.over(plan)]
        kept = json.dumps({**sizes_there(directory), **sizes}).encode() + b"\n"
        write_pieces(directory / SIZES_FILE, [kept])
    except OSError as error:
        raise BadInput(f"demo chains cannot be written to {directory}: {error.strerror or error}: use another --to") from None
    return chains


def sizes_there(directory: Path) -> dict[str, str]:
    """The size of each domain's chains in a directory."""
    try:
        found = json.loads((directory / SIZES_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = found if isinstance(found, dict) else {}
    return {name: size for name, size in known.items() if name in WRITERS and size in SIZES}


def _sizes(directory: Path, domain: str | None, size: str | None) -> Mapping[str, str]:
    """How long the chains of each domain are to become."""
    if size is not None and size not in SIZES:
        raise BadInput(f"{size!r} is not a demo size: choose one of {', '.join(SIZES)}")
    if domain is not None and domain not in WRITERS:
        raise BadInput(f"{domain!r} is not a domain: choose one of {', '.join(WRITERS)}")
    order, there = list(SIZES), sizes_there(directory)
    for name in [domain] if domain else WRITERS:
        if size is not None and name in there and order.index(size) < order.index(there[name]):
            raise BadInput(
                f"the demo chains in {directory} are {there[name]}, and {size} would cut off blocks that a lake may hold:"
                f" leave --size out, or choose another place"
            )
    return {name: size or there.get(name, USUAL) for name in ([domain] if domain else WRITERS)}


def _evm(directory: Path, count: int) -> DemoChain:
    (path,) = evm.write(directory / "demo-evm", count)
    return DemoChain("demo-evm", "evm", "logs", path, {"finalized": "true"}, count)


def _shard(directory: Path, count: int, shard: int, app_hash: str) -> DemoChain:
    name = f"demo-shard-{shard}"
    path, registry = comet.write(directory / name, count, shard=shard, app_hash=app_hash)
    return DemoChain(name, "comet", "shards", path, {"registry": str(registry), "app_hash": app_hash}, count)


def _cardano(directory: Path, count: int) -> DemoChain:
    path, genesis = cage.write(directory / "demo-cardano", count)
    options = {**cage.options(genesis), "network_start": str(cardano.NETWORK_START)}
    return DemoChain("demo-cardano", "cardano", "cage", path, options, count)


def _replica(directory: Path, count: int, replica: str) -> DemoChain:
    name = f"demo-replica-{replica}"
    (path,) = raft.write(directory / name, count, replica=replica)
    return DemoChain(name, "raft", "replica", path, {}, count)


def _river(directory: Path, count: int) -> DemoChain:
    river.write(directory / "demo-river", count)
    return DemoChain("demo-river", "river", "sync", directory / "demo-river", {}, count)


WRITERS: dict[str, tuple[Callable[[Path, int], DemoChain], ...]] = {
    "logs": (_evm,),
    "shards": tuple(partial(_shard, shard=shard, app_hash=kind) for shard, kind in enumerate(("placeholder", "tree"))),
    "cage": (_cardano,),
    "replica": tuple(partial(_replica, replica=replica) for replica in ("a", "b", "c")),
    "sync": (_river,),
}
"""What writes the chains of a domain, one by one."""
