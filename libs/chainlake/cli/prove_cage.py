"""`lake prove cage` and `lake prove utxo`."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from chainlake.cli.data import parse_height
from chainlake.cli.proof_forms import add_form, show_proof
from chainlake.encoding import from_hex

if TYPE_CHECKING:
    from chainlake.cage.reader import CageReader


def add_cage(domains: Any, name: str, common: argparse.ArgumentParser) -> None:
    cage = domains.add_parser(
        name,
        parents=[common],
        help="that a key has its value in a token's trie, or is not in it: a Merkle Patricia Forestry proof under its root",
        epilog="example: lake prove cage demo-cardano 0x0e60… 0x6b6579 --height 40 --raw > proof.cbor",
    )
    _add_chain(cage)
    cage.add_argument("token", help="asset name of the token, hex")
    cage.add_argument("key", help="key in its trie, hex")
    add_form(cage, "the proof in CBOR")
    cage.set_defaults(run=_prove_cage)


def add_utxo(domains: Any, name: str, common: argparse.ArgumentParser) -> None:
    utxo = domains.add_parser(
        name,
        parents=[common],
        help="that an output is unspent, or not: a proof under the root of the UTxO set",
        epilog="example: lake prove utxo demo-cardano 'txid#0' --height 40",
    )
    _add_chain(utxo)
    utxo.add_argument("txin", help="the output: txid#index")
    add_form(utxo, "the proof in CBOR")
    utxo.set_defaults(run=_prove_utxo)


def _prove_cage(given: argparse.Namespace) -> int:
    token, key, height = from_hex(given.token, "the token"), from_hex(given.key, "the key"), parse_height(given.height)
    return show_proof(given, _reader(given).prove_fact(token, key, height))


def _prove_utxo(given: argparse.Namespace) -> int:
    from chainlake.cage.settings import parse_txin

    place, height = parse_txin(given.txin), parse_height(given.height)
    return show_proof(given, _reader(given).prove_utxo(place, height))


def _add_chain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chain", nargs="?", help="may be left out where there is one Cardano chain")


def _reader(given: argparse.Namespace) -> "CageReader":
    from chainlake.cage.reader import CageReader
    from chainlake.lake.home import find_home
    from chainlake.serve.control import LakeControl, chain_of_kind
    from chainlake.serve.embedded import EmbeddedLake

    home, prefix = find_home(given.home).path, os.environ.get("LAKE_PREFIX", "")
    if given.chain is None:
        chains = LakeControl(EmbeddedLake(home, prefix)).chains()
        given.chain = chain_of_kind(chains, "cardano", None, "name one before the rest")
    return CageReader(home, given.chain, prefix=prefix)
