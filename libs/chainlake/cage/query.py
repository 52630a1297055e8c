"""Questions about the cage as people and programs ask them: paths and texts in, plain JSON out."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from chainlake.cage.reader import CageReader, Proven
from chainlake.cage.settings import parse_txin
from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput

HIDDEN = ("_chain", "_height", "_commit", "_deleted")
MOST_DIGITS = 18
Params = Mapping[str, str]


def answer(reader: CageReader, path: str, query: Params) -> Any:
    """The answer to a path such as `/cage/tokens`; `BadInput` says what is wrong with it."""
    parts = path.strip("/").split("/")
    height = read_height(query)
    match parts:
        case ["cage"]:
            block = reader.block(height)
            return {"height": block["_height"], **plain(block)}
        case ["cage", "tokens"]:
            return [plain(row) for row in reader.tokens(height)]
        case ["cage", "requests"]:
            return [plain(row) for row in reader.requests(height, _bytes(query, "token"), _bytes(query, "owner"))]
        case ["cage", "token", token]:
            return plain(reader.token(from_hex(token, "the token"), height))
        case ["cage", "token", token, "facts"]:
            return [plain(row) for row in reader.facts(from_hex(token, "the token"), height)]
        case ["utxo", place]:
            found = reader.utxo(parse_txin(place), height)
            return None if found is None else plain(found)
        case ["utxos", "address", address]:
            return [plain(row) for row in reader.utxos_of(from_hex(address, "the address"), height)]
        case ["utxos", "asset", policy]:
            return [plain(row) for row in reader.utxos_with(from_hex(policy, "the policy"), None, height)]
        case ["utxos", "asset", policy, name]:
            own = from_hex(policy, "the policy"), from_hex(name, "the name")
            return [plain(row) for row in reader.utxos_with(*own, height)]
    raise BadInput(f"there is nothing at {path[:200]}: GET / lists what there is")


def proof(reader: CageReader, path: str, query: Params) -> Proven:
    """The proof that a path such as `/utxo/txid#0/proof` asks for."""
    height = read_height(query)
    match path.strip("/").split("/"):
        case ["cage", "token", token, "proof", key]:
            return reader.prove_fact(from_hex(token, "the token"), from_hex(key, "the key"), height)
        case ["utxo", place, "proof"]:
            return reader.prove_utxo(parse_txin(place), height)
    raise BadInput(f"there is no proof at {path[:200]}: GET / lists what there is")


def read_height(query: Params) -> int | None:
    """The block that a query asks for; None for the last one."""
    text = query.get("height", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise BadInput(f"height {text[:40]!r}: a block number of 0 or more is expected")
    return int(text)


def plain(value: Any) -> Any:
    """A row as JSON: bytes as 0x hex, large numbers as text would lose nothing, so they stay numbers."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items() if name not in HIDDEN}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return to_hex(value)
    return int(value) if isinstance(value, Decimal) else value


def _bytes(query: Params, name: str) -> bytes | None:
    text = query.get(name)
    return None if not text else from_hex(text, name)
