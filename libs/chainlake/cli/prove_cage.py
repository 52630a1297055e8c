"""`lake prove cage` and `lake prove utxo`."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from chainlake.cli.data import parse_height
from chainlake.cli.show import emit_json
from chainlake.encoding import from_hex

if TYPE_CHECKING:
    from chainlake.cage.reader import CageReader, Proven


def add_cage(domains: Any, name: str, common: argparse.ArgumentParser) -> None:
    cage = domains.add_parser(
        name,
        parents=[common],
        help="that a key has its value in a token's trie, or is not in it: a Merkle Patricia Forestry proof under its root",
        epilog="example: lake prove cage demo-cardano 0x0e60… 0x6b6579 --height 40 --raw > proof.cbor",
    )
    cage.add_argument("chain")
    cage.add_argument("token", help="asset name of the token, hex")
    cage.add_argument("key", help="key in its trie, hex")
    _add_form(cage)
    cage.set_defaults(run=_prove_cage)


def add_utxo(domains: Any, name: str, common: argparse.ArgumentParser) -> None:
    utxo = domains.add_parser(
        name,
        parents=[common],
        help="that an output is unspent, or not: a proof under the root of the UTxO set",
        epilog="example: lake prove utxo demo-cardano 'txid#0' --height 40",
    )
    utxo.add_argument("chain")
    utxo.add_argument("txin", help="the output: txid#index")
    _add_form(utxo)
    utxo.set_defaults(run=_prove_utxo)


def _add_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--height", metavar="N", help="after this block (default: the last one)")
    parser.add_argument("--raw", action="store_true", help="the proof in CBOR, nothing else")


def _prove_cage(given: argparse.Namespace) -> int:
    token, key, height = from_hex(given.token, "the token"), from_hex(given.key, "the key"), parse_height(given.height)
    return _show(given, _reader(given).prove_fact(token, key, height))


def _prove_utxo(given: argparse.Namespace) -> int:
    from chainlake.cage.settings import parse_txin

    place, height = parse_txin(given.txin), parse_height(given.height)
    return _show(given, _reader(given).prove_utxo(place, height))


def _reader(given: argparse.Namespace) -> "CageReader":
    from chainlake.cage.reader import CageReader
    from chainlake.lake.home import find_home

    return CageReader(find_home(given.home).path, given.chain, prefix=os.environ.get("LAKE_PREFIX", ""))


def _show(given: argparse.Namespace, proven: "Proven") -> int:
    if given.raw:
        sys.stdout.buffer.write(proven.proof.to_bytes())
        sys.stdout.buffer.flush()
    else:
        emit_json(proven.to_json(given.chain))
    return 0
