"""All demo chains on disk, ready for `lake ingest`."""

from dataclasses import dataclass
from pathlib import Path

from chainlake.demo import cage, cardano, comet, evm, raft, river
from chainlake.errors import BadInput

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"logs": 20, "shards": 10, "cage": 20, "replica": 10, "sync": 2},
    "small": {"logs": 200, "shards": 100, "cage": 150, "replica": 60, "sync": 5},
    "medium": {"logs": 2_000, "shards": 1_000, "cage": 2_000, "replica": 600, "sync": 10},
    "large": {"logs": 10_000, "shards": 5_000, "cage": 20_000, "replica": 5_000, "sync": 20},
}


@dataclass(frozen=True)
class DemoChain:
    """A chain that can be ingested. `blocks` is its length, without the blocks of abandoned branches."""

    name: str
    kind: str
    domain: str
    path: Path
    options: dict[str, str]
    blocks: int


def write_demo(directory: Path, domain: str | None = None, size: str = "small") -> list[DemoChain]:
    """Writes the chains of a domain, or all. Run again it writes the same bytes."""
    if size not in SIZES:
        raise BadInput(f"{size!r} is not a demo size: choose one of {', '.join(SIZES)}")
    if domain is not None and domain not in SIZES[size]:
        raise BadInput(f"{domain!r} is not a domain: choose one of {', '.join(SIZES[size])}")
    wanted = SIZES[size] if domain is None else {domain: SIZES[size][domain]}
    writers = {"logs": _logs, "shards": _shards, "cage": _cage, "replica": _replica, "sync": _sync}
    try:
        return [chain for name, count in wanted.items() for chain in writers[name](directory.absolute(), count)]
    except OSError as error:
        raise BadInput(f"demo chains cannot be written to {directory}: {error.strerror or error}: use another --to") from None


def _logs(directory: Path, count: int) -> list[DemoChain]:
    (path,) = evm.write(directory / "demo-evm", count)
    return [DemoChain("demo-evm", "evm", "logs", path, {"finalized": "true"}, count)]


def _shards(directory: Path, count: int) -> list[DemoChain]:
    chains = []
    for shard, app_hash in enumerate(("placeholder", "tree")):
        name = f"demo-shard-{shard}"
        path, registry = comet.write(directory / name, count, shard=shard, app_hash=app_hash)
        options = {"registry": str(registry), "app_hash": app_hash}
        chains.append(DemoChain(name, "comet", "shards", path, options, count))
    return chains


def _cage(directory: Path, count: int) -> list[DemoChain]:
    path, genesis = cage.write(directory / "demo-cardano", count)
    options = {**cage.options(genesis), "network_start": str(cardano.NETWORK_START)}
    return [DemoChain("demo-cardano", "cardano", "cage", path, options, count)]


def _replica(directory: Path, count: int) -> list[DemoChain]:
    chains = []
    for replica in ("a", "b", "c"):
        name = f"demo-replica-{replica}"
        (path,) = raft.write(directory / name, count, replica=replica)
        chains.append(DemoChain(name, "raft", "replica", path, {}, count))
    return chains


def _sync(directory: Path, count: int) -> list[DemoChain]:
    river.write(directory / "demo-river", count)
    return [DemoChain("demo-river", "river", "sync", directory / "demo-river", {}, count)]
