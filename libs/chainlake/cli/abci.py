"""`lake abci`: a metadata shard behind CometBFT, with the state that the lake holds."""

import argparse
import asyncio
import os
import re
import signal
from typing import TYPE_CHECKING, Any

from chainlake.cli.data import parse_height, parse_number
from chainlake.errors import BadInput

if TYPE_CHECKING:
    from chainlake.abci.application import Application


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    abci = commands.add_parser(
        "abci",
        parents=[common],
        help="run a metadata shard as the ABCI application of a CometBFT node (0.38 or 1.0)",
        epilog="example: lake abci --chain shard-0 --registry nodes.jsonl, then cometbft start --proxy_app tcp://127.0.0.1:26658",
    )
    abci.add_argument("--chain", required=True, metavar="NAME", help="chain of the lake; one that is not there yet starts empty")
    abci.add_argument(
        "--listen", default="127.0.0.1:26658", metavar="HOST:PORT", help="where CometBFT connects to (default: 127.0.0.1:26658)"
    )
    abci.add_argument("--registry", metavar="FILE", help="nodes, as lake ingest takes them (default: that of the chain)")
    abci.add_argument("--app-hash", choices=("tree", "placeholder"), help="what blocks commit to (default: as the chain has it)")
    abci.add_argument(
        "--height", metavar="N", help="begin after this block of the lake, 0: with nothing (default: the lake's last block)"
    )
    abci.add_argument(
        "--snapshot-every", default="0", metavar="N", help="take a snapshot for others every N blocks (default: none)"
    )
    abci.set_defaults(run=_abci)


def _abci(given: argparse.Namespace) -> int:
    match = re.fullmatch(r"(?:tcp://)?(\[[0-9a-fA-F:]+\]|[\w.-]*):([0-9]{1,5})", given.listen)
    if match is None or int(match[2]) > 65535:
        raise BadInput(f"--listen {given.listen!r}: write it like 127.0.0.1:26658")
    every = parse_number(given.snapshot_every, "--snapshot-every")
    if every < 0:
        raise BadInput(f"--snapshot-every {every}: a number of 0 or more is expected")
    application = open_application(given, every)
    return asyncio.run(_run(application, given.chain, match[1].strip("[]") or "127.0.0.1", int(match[2])))


def open_application(given: argparse.Namespace, every: int) -> "Application":
    """The shard as the lake has it after a block; empty if the lake does not have it yet."""
    from chainlake.abci.application import Application
    from chainlake.lake.home import find_home
    from chainlake.serve.control import LakeControl
    from chainlake.serve.embedded import EmbeddedLake
    from chainlake.shards.machine import Shard
    from chainlake.shards.reader import ShardReader, ShardView
    from chainlake.shards.registry import read_registry
    from chainlake.shards.state import TREE

    home, prefix = find_home(given.home).path, os.environ.get("LAKE_PREFIX", "")
    has_lake = (home / "warehouse" / f"{prefix}control" / "ledger" / "_delta_log").is_dir()
    row = LakeControl(EmbeddedLake(home, prefix)).chains().get(given.chain) if has_lake else None
    if row is not None and row["kind"] != "comet":
        raise BadInput(f"{given.chain} is a chain of kind {row['kind']}: lake abci runs chains of kind comet")
    options = dict(row["options"] or {}) if row is not None else {}
    path = given.registry or options.get("registry")
    if not path:
        raise BadInput(f"{given.chain} has no registry of nodes: give --registry FILE")
    registry, mode = read_registry(path), given.app_hash or options.get("app_hash", TREE)
    wanted = parse_height(given.height)
    if row is None:
        if wanted:
            raise BadInput(f"the lake has no block {wanted} of {given.chain}: leave --height out, or see lake status")
        return Application(Shard(registry, mode), snapshot_every=every)
    reader = ShardReader(home, given.chain, prefix=prefix)
    height = reader.head() if wanted is None else wanted or None
    streams = reader.streams(height) if height is not None else []
    shard = Shard(registry, mode, height, streams)
    if height is not None and reader.root(height).state_root != shard.state_root:
        raise BadInput(f"the streams of {given.chain} do not have the root of block {height} with this registry: see lake verify")
    return Application(shard, lambda at: ShardView(reader, at), every, options.get("chain_id", ""))


async def _run(application: "Application", chain: str, host: str, port: int) -> int:
    """Serve until a signal comes, or until CometBFT asks what cannot be answered."""
    from chainlake.abci.server import AbciServer
    from chainlake.cli.show import emit

    server = AbciServer(application)
    try:
        host, port = await server.start(host, port)
    except OSError as error:
        raise BadInput(f"cannot listen on {host}:{port} ({error.strerror or error}): choose another --listen") from None
    height = application.shard.height
    emit(f"shard {chain} at block {height or 0} listens on tcp://{host}:{port}, Ctrl-C ends it")
    codes: list[int] = []
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        asyncio.get_running_loop().add_signal_handler(number, _end, server.ended, codes, code)
    await server.ended.wait()
    await server.stop()
    return codes[0] if codes else 1


def _end(ended: asyncio.Event, codes: list[int], code: int) -> None:
    """A signal came; the first one decides the exit code."""
    codes.append(code)
    ended.set()
