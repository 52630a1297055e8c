"""`lake snapshot`: a shard at a height as one verifiable file, and back."""

import argparse
import os
from pathlib import Path
from typing import Any

from chainlake.cli.data import parse_height, parse_options
from chainlake.cli.show import emit
from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput, CheckFailed


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    snapshot = commands.add_parser(
        "snapshot",
        help="a metadata shard at a height as one verifiable file, and back",
        epilog="example: lake snapshot export demo-shard-1 shard.snapshot --height 50",
    )
    actions = snapshot.add_subparsers(dest="action", metavar="ACTION", required=True)
    export = actions.add_parser(
        "export",
        parents=[common],
        help="write a shard to a file",
        epilog="example: lake snapshot export demo-shard-1 shard.snapshot --height 50",
    )
    export.add_argument("chain", help="the shard: a chain of kind comet")
    export.add_argument("file", help="where to write it")
    export.add_argument("--height", metavar="N", help="after this block (default: the last one)")
    export.set_defaults(run=_export)
    take = actions.add_parser(
        "import",
        parents=[common],
        help="begin a chain with a snapshot; its next blocks come from a source",
        epilog="example: lake snapshot import FILE --chain shard-1 --from http://127.0.0.1:26657 --option registry=nodes.jsonl",
    )
    take.add_argument("file", help="what lake snapshot export wrote")
    take.add_argument("--chain", required=True, metavar="NAME", help="a name for the chain, new in the lake")
    take.add_argument("--from", dest="source", required=True, metavar="PATH|URL", help="where the next blocks come from")
    take.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the chain; repeatable")
    take.add_argument("--root", metavar="HEX", help="the state root that the snapshot must have, from a source that you trust")
    take.add_argument("--hash", metavar="HEX", help="the hash of the snapshot, as export told it to somebody that you trust")
    take.set_defaults(run=_import)


def _export(given: argparse.Namespace) -> int:
    from chainlake.demo import write_pieces
    from chainlake.lake.home import home_path
    from chainlake.lake.progress import Progress
    from chainlake.serve.control import chain_of_home
    from chainlake.shards.export import STEPS as EXPORT_STEPS
    from chainlake.shards.export import export
    from chainlake.shards.snapshot import pieces_of

    height, home, prefix = parse_height(given.height), home_path(given.home), os.environ.get("LAKE_PREFIX", "")
    chain_of_home(home, prefix, "comet", given.chain, "name one")
    progress = Progress("export", EXPORT_STEPS, unit="steps")
    header, chunks = export(home, given.chain, height, prefix=prefix, step=lambda: progress.advance(1))
    try:
        write_pieces(Path(given.file), pieces_of(header, chunks))
    except OSError as error:
        raise BadInput(f"the snapshot cannot be written to {given.file}: {error.strerror or error}") from None
    finally:
        progress.close()
    emit(f"{given.chain} at block {header.height}: {header.stream_count:,} streams, root {to_hex(header.state_root)}")
    emit(f"hash {to_hex(header.hash)}, of all that the file says")
    return 0


def _import(given: argparse.Namespace) -> int:
    from chainlake.lake import open_lake
    from chainlake.lake.chains import check_name
    from chainlake.lake.progress import Progress
    from chainlake.shards.importing import import_snapshot
    from chainlake.shards.snapshot import read
    from chainlake.sources.formats import check_files, check_options, format_of

    options = parse_options(given.option)
    check_name(given.chain)
    check_options("comet", options)
    check_files(options)
    format_of("comet").expand(given.source)
    root = None if given.root is None else from_hex(given.root, "--root")
    digest = None if given.hash is None else from_hex(given.hash, "--hash")
    try:
        with open(given.file, "rb") as source:
            header, shard = read(source, Progress("import", unit="chunks").over)
    except OSError as error:
        raise BadInput(f"the snapshot {given.file} cannot be read: {error.strerror or error}") from None
    if digest not in (None, header.hash):
        raise CheckFailed(f"the snapshot has hash {to_hex(header.hash)}, expected is {given.hash}: do not use it")
    import_snapshot(open_lake(given.home), given.chain, given.source, options, header, shard, root)
    emit(f"{given.chain} begins at block {header.height} with {header.stream_count:,} streams, root {to_hex(header.state_root)}")
    return 0
