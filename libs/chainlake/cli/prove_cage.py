"""`lake prove cage` and `lake prove utxo`."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from chainlake.cli.data import parse_height
from chainlake.cli.proof_forms import add_form, show_proof
from chainlake.encoding import from_hex

if TYPE_CHECKING:
    from chainlake.cage.reader import CageReader

CAGE_EXAMPLE = (
    "lake prove cage demo-cardano 0x3a1b6cb464645f15182823a19eb305c585dfa50bf9b5f2fb59dffdc86de52905 0x6b6579203134 --height 15"
)
UTXO_EXAMPLE = "lake prove utxo demo-cardano '850aa506c33a5028e3de6b20cd073cbe997d55ea26d37c4f2c66d20a6030335b#1' --height 5"


def add_cage(domains: Any, name: str, common: argparse.ArgumentParser) -> None:
    cage = domains.add_parser(
        name,
        parents=[common],
        help="that a key has its value in a token's trie, or is not in it: a Merkle Patricia Forestry proof under its root",
        epilog=f"example: {CAGE_EXAMPLE} --raw > proof.cbor",
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
        epilog=f"example: {UTXO_EXAMPLE}",
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
    from chainlake.lake.home import home_path
    from chainlake.serve.control import chain_of_home

    home, prefix = home_path(given.home), os.environ.get("LAKE_PREFIX", "")
    given.chain = chain_of_home(home, prefix, "cardano", given.chain, "name one before the rest")
    return CageReader(home, given.chain, prefix=prefix)
