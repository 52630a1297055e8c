"""Questions about the cage as people and programs ask them: paths and texts in, plain JSON out.

Lists have at most 10,000 rows. Longer ones are asked for in parts, by `limit` and `offset`: a part that is shorter than its limit
is the last. They are never cut without a word.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from chainlake.cage.reader import CageReader, Proven
from chainlake.cage.settings import parse_txin
from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput

HIDDEN = ("_chain", "_height", "_commit", "_deleted")
MOST = 10_000
MOST_NUMBER = 10**18
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
            return _part(reader.tokens(height), query)
        case ["cage", "requests"]:
            return _part(reader.requests(height, _bytes(query, "token"), _bytes(query, "owner")), query)
        case ["cage", "token", token]:
            return plain(reader.token(from_hex(token, "the token"), height))
        case ["cage", "token", token, "facts"]:
            return _part(reader.facts(from_hex(token, "the token"), height), query)
        case ["utxo", place]:
            found = reader.utxo(parse_txin(place), height)
            return None if found is None else plain(found)
        case ["utxos", "address", address]:
            return _part(reader.utxos_of(from_hex(address, "the address"), height), query)
        case ["utxos", "asset", policy]:
            return _part(reader.utxos_with(from_hex(policy, "the policy"), None, height), query)
        case ["utxos", "asset", policy, name]:
            own = from_hex(policy, "the policy"), from_hex(name, "the name")
            return _part(reader.utxos_with(*own, height), query)
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
    return _number(query, "height", "a block number of 0 or more", 0, MOST_NUMBER - 1) if query.get("height") else None


def plain(value: Any) -> Any:
    """A row as JSON: bytes as 0x hex, numbers as numbers, also those that JavaScript would round."""
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


def _part(rows: Sequence[Mapping[str, Any]], query: Params) -> list[Any]:
    """The rows of a list that a query asks for."""
    offset = _number(query, "offset", "a number of 0 or more", 0, MOST_NUMBER - 1) if "offset" in query else 0
    limit = _number(query, "limit", f"a number from 1 to {MOST:,}", 1, MOST) if "limit" in query else MOST
    if "limit" not in query and len(rows) - offset > MOST:
        why = f"{len(rows):,} rows are more than an answer has"
        raise BadInput(f"{why}: ask for {MOST:,} at a time with limit, offset and one height")
    return [plain(row) for row in rows[offset : offset + limit]]


def _number(query: Params, name: str, expected: str, least: int, most: int) -> int:
    text = query[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise BadInput(f"{name} {text[:40]!r}: {expected} is expected")
    return int(text)
