"""What a Cardano chain's options say: which script the cage is, and what there was before the first block."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from chainlake.cage.datums import Cage
from chainlake.cage.decode import decode_output
from chainlake.cage.transaction import TxIn, TxOut
from chainlake.encoding import from_hex
from chainlake.errors import BadInput

MOST_LINE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Options of a chain, checked."""

    cage: Cage | None
    genesis: str | None
    genesis_complete: bool

    @staticmethod
    def of(options: Mapping[str, str]) -> "Settings":
        policy = options.get("cage_policy")
        return Settings(
            Cage.of(policy, options.get("network", "testnet")) if policy else None,
            options.get("genesis") or None,
            options.get("genesis_complete") == "true",
        )


def read_genesis(path: str) -> Iterator[tuple[TxIn, TxOut]]:
    """The outputs of a genesis file: JSON lines `{"txin": "txid#index", "txout": "hex"}`."""
    try:
        with open(path, "rb") as stream:
            number = 0
            while line := stream.readline(MOST_LINE):
                number += 1
                if line.strip():
                    yield _genesis_line(line, f"line {number} of {path}")
    except OSError as error:
        raise BadInput(f"the genesis file {path} cannot be read: {error.strerror}: see option genesis of the chain") from None


def parse_txin(text: str) -> TxIn:
    """`txid#index`."""
    tx_id, mark, number = text.partition("#")
    if not mark or not (number.isascii() and number.isdigit() and len(number) <= 9):
        raise BadInput(f"{text[:100]!r} is no output: write it as txid#index")
    found = from_hex(tx_id, "the transaction id")
    if len(found) != 32:
        raise BadInput(f"the transaction id of {text[:100]!r} has {len(found)} bytes: it has 32")
    return TxIn(found, int(number))


def _genesis_line(line: bytes, where: str) -> tuple[TxIn, TxOut]:
    try:
        entry = orjson.loads(line)
        match entry:
            case {"txin": str(place), "txout": str(output)}:
                return parse_txin(place), decode_output(from_hex(output, "txout"))
    except ValueError as error:
        raise BadInput(f"{where} is no JSON: {str(error)[:100]}") from None
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    raise BadInput(f'{where} is not {{"txin": "txid#index", "txout": "hex"}}')
