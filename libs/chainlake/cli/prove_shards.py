"""`lake prove shards`: a stream and its proof."""

import argparse
import os
from typing import Any

from chainlake.cli.data import parse_height
from chainlake.cli.proof_forms import add_form, show_proof

SHARDS_EXAMPLE = "lake prove shards demo-shard-1 0x1083fdf6a3e6548fcf427141a6095dc1b0976c130e0000000000000000000000 --height 5"


def add_shards(domains: Any, name: str, common: argparse.ArgumentParser) -> None:
    shards = domains.add_parser(
        name,
        parents=[common],
        help="that a stream has its metadata, or is not there: an ICS-23 proof under the state root",
        epilog=f"example: {SHARDS_EXAMPLE} --raw > proof.bin",
    )
    shards.add_argument("chain", help="the shard: a chain of kind comet")
    shards.add_argument("stream", help="id of the stream, 64 hex digits")
    add_form(shards, "the ICS-23 CommitmentProof in protobuf")
    shards.set_defaults(run=_prove_shards)


def _prove_shards(given: argparse.Namespace) -> int:
    from chainlake.lake.home import home_path
    from chainlake.serve.control import chain_of_home
    from chainlake.shards.query import parse_stream_id
    from chainlake.shards.reader import ShardReader

    stream_id, height = parse_stream_id(given.stream), parse_height(given.height)
    home, prefix = home_path(given.home), os.environ.get("LAKE_PREFIX", "")
    chain = chain_of_home(home, prefix, "comet", given.chain, "name one")
    reader = ShardReader(home, chain, prefix=prefix)
    return show_proof(given, reader.prove(stream_id, height))
