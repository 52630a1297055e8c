"""The kinds of chains: the format of each, the domain that takes it on, and the options that it knows."""

import os
import re
from collections.abc import Mapping
from typing import Protocol

from chainlake.errors import BadInput, LakeError
from chainlake.sources import comet_rpc, evm_rpc, files
from chainlake.sources.base import BlockFormat, Cursor, is_url
from chainlake.sources.cardano import CardanoFormat
from chainlake.sources.comet import CometFormat
from chainlake.sources.evm import EvmFormat
from chainlake.sources.raft import RaftFormat
from chainlake.sources.river import RiverFormat, passes, stream_ids


class FileFormat(BlockFormat, Protocol):
    """A format that also knows which files a path means."""

    def expand(self, path: str) -> list[str]:
        """The files of `--from PATH`, in the order in which they are read."""
        ...


FORMATS: dict[str, FileFormat] = {
    "evm": EvmFormat(),
    "comet": CometFormat(),
    "cardano": CardanoFormat(),
    "raft": RaftFormat(),
    "river": RiverFormat(),
}


class NodeSource(Protocol):
    """What the modules that ask nodes have in common."""

    def network(self, url: str, options: Mapping[str, str]) -> str:
        """The chain id that a node tells."""
        ...

    def left(self, url: str, cursor: Cursor | None, options: Mapping[str, str]) -> int:
        """How many blocks a node has after the cursor."""
        ...


NODES: dict[str, NodeSource] = {"evm": evm_rpc, "comet": comet_rpc}
"""Kinds of chains that are also read from nodes."""

DOMAIN_OF = {"evm": "logs", "comet": "shards", "cardano": "cage", "raft": "replica", "river": "sync"}

NODE_OPTIONS = {
    "header_env": "node: environment variable that holds the Authorization header",
    "chain_id": "node: the chain id that it must have; remembered from the first contact",
    "batch": "node: calls in one request (default 20)",
    "rate": "node: calls a second, all readers together (default: no limit)",
    "timeout": "node: seconds to wait for an answer (default 30)",
    "retries": "node: how often a request is tried again (default 6)",
    "max_response": "node: bytes of an answer at most (default 134217728)",
}

OPTIONS: dict[str, dict[str, str]] = {
    "evm": {
        "finalized": "true (default): blocks are final and a replaced one is an error; false: the chain may fork",
        "window": "with finalized=false, how many blocks may be rolled back (default 64)",
        "finality": "node: read up to its finalized (default) or safe block, or latest:N for N blocks below its newest",
        "from_block": "node: first block to read (default 0), or finalized-N for N blocks below the last final one",
        **NODE_OPTIONS,
    },
    "comet": {
        "registry": "file of nodes, JSON lines {address, permanent_index, from_height}",
        "app_hash": "what headers carry: tree (the state root) or placeholder (SHA-256 of the height)",
        "results": "file of /block_results to compare with",
        "mask": "shard mask over the stream's xxhash64 (default 1023)",
        "from_block": "node: first block to read (default: the first that it has)",
        **NODE_OPTIONS,
    },
    "cardano": {
        "cage_policy": "policy id of the cage script, hex",
        "network": "testnet or mainnet",
        "genesis": "file of the UTxO set before the first block, JSON lines {txin, txout}",
        "genesis_complete": "true: spending an output that is not known is an error",
        "network_start": "unix second of slot 0, to give blocks a time",
        "byron_slots": "how many of the first slots were Byron's, of 20 seconds (default 0; mainnet 4492800, preprod 86400)",
        "window": "how many blocks may be rolled back (default 2160)",
    },
    "raft": {"unified_meta": "true (default): one Meta log; false: the three logs of before"},
    "river": {
        "streams": "file of stream ids, one hex id a line",
        "page_size": "miniblocks per request (default 200)",
        "rate": "requests per second and node (default: no limit)",
        "max_gap_commit": "miniblocks per commit when gaps are filled (default 20000)",
        "timeout": "seconds to wait for an answer (default 30)",
        "retries": "how often all nodes are asked again (default 4)",
    },
}

FILE_OPTIONS = ("registry", "results", "genesis", "streams")
_CHOICES = {
    "finalized": ("true", "false"),
    "app_hash": ("tree", "placeholder"),
    "network": ("testnet", "mainnet"),
    "genesis_complete": ("true", "false"),
    "unified_meta": ("true", "false"),
}
_NUMBERS = (
    "window",
    "mask",
    "network_start",
    "byron_slots",
    "rate",
    "chain_id",
    "retries",
)
_COUNTS = ("batch", "max_response", "page_size", "max_gap_commit", "timeout")
_NAMED = ("comet",)
"""Kinds whose chain id is a name."""
_SHAPES = {
    "finality": ("finalized|safe|latest:[0-9]{1,9}", "finalized, safe or latest:N"),
    "from_block": ("[0-9]{1,18}|finalized-[0-9]{1,18}", "a block number or finalized-N"),
    "cage_policy": ("(0x)?[0-9a-fA-F]{56}", "a policy id of 56 hex digits"),
    "header_env": ("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable"),
}


def format_of(kind: str) -> FileFormat:
    """The format of a kind of chain."""
    if kind not in FORMATS:
        raise BadInput(f"{kind!r} is not a kind of chain: choose one of {', '.join(FORMATS)}")
    return FORMATS[kind]


def check_options(kind: str, options: Mapping[str, str]) -> None:
    """Refuses options that the kind does not know, and values that an option cannot have."""
    format_of(kind)
    for name, value in options.items():
        if name not in OPTIONS[kind]:
            raise BadInput(f"{kind} chains have no option {name!r}: they know {', '.join(OPTIONS[kind])}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise BadInput(f"option {name} is {value!r}: choose {' or '.join(_CHOICES[name])}")
        if name == "chain_id" and kind in _NAMED:
            continue
        if kind == "comet" and name == "from_block" and not re.fullmatch("[0-9]{1,18}", value):
            raise BadInput(f"option from_block is {value!r}: a block number is expected")
        if name in _NUMBERS and not (value.isascii() and value.isdigit() and len(value) <= 18):
            raise BadInput(f"option {name} is {value!r}: a whole number is expected")
        if name in _COUNTS and not re.fullmatch("[1-9][0-9]{0,17}", value):
            raise BadInput(f"option {name} is {value!r}: a whole number of 1 or more is expected")
        if name in _SHAPES and not re.fullmatch(_SHAPES[name][0], value):
            raise BadInput(f"option {name} is {value!r}: {_SHAPES[name][1]} is expected")


def placed(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they are remembered: files by their whole path, since notebooks run in directories of their own."""
    return {name: os.path.abspath(value) if name in FILE_OPTIONS and value else value for name, value in options.items()}


def check_files(options: Mapping[str, str]) -> None:
    """Refuses options that name a file which is not there. Better now than when a later stage wants to read it."""
    for name, value in options.items():
        if name in FILE_OPTIONS and not os.path.isfile(value):
            raise BadInput(f"option {name}: there is no file {value!r}")


def rollback_window(kind: str, options: Mapping[str, str]) -> int:
    """How many blocks of a chain may still be replaced; 0 for chains whose blocks are final."""
    format_of(kind)
    if kind == "cardano":
        return int(options.get("window", "2160"))
    return evm_rpc.window(options) if kind == "evm" else 0


def network_of(kind: str, paths: list[str], options: Mapping[str, str]) -> str | None:
    """The chain id that a node tells; None for files. `Unavailable` if it cannot be reached, `BadInput` if it is another one.
    Nodes of streams tell none: there, which streams to follow is looked at."""
    if kind == "river" and is_url(paths[0]):
        stream_ids(options)
    return NODES[kind].network(paths[0], options) if kind in NODES and is_url(paths[0]) else None


def left(kind: str, paths: list[str], cursor: Cursor | None, options: Mapping[str, str]) -> int | None:
    """How much a source has after the cursor, for progress bars: blocks of a node, passes of river, bytes of files. None if that
    takes longer than a look."""
    try:
        if is_url(paths[0]) and kind in NODES:
            return NODES[kind].left(paths[0], cursor, options)
        if kind == "river":
            rest = files.remaining(paths, cursor)
            return sum(held is None or number > held for path, held in rest for number in passes(path))
        return files.left(paths, cursor)
    except (LakeError, OSError):
        return None
