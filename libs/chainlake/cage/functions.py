"""Proofs in SQL: `SELECT * FROM prove_cage(chain, token, key)` and `prove_utxo(chain, 'txid#index')`, with a height if wanted."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainlake.encoding import from_hex
from chainlake.errors import BadInput

if TYPE_CHECKING:
    from chainlake.cage.reader import Proven
    from chainlake.lake.lake import Lake

COLUMNS = "height bigint, root binary, key binary, value binary, proof string, cbor binary"
NAMES = ("prove_cage", "prove_utxo")


def register(lake: "Lake") -> None:
    """Make both functions known to this session's SQL."""
    from pyspark.sql.functions import udtf

    if lake.catalog.location is None:
        raise BadInput("proofs are read from files of a local lake: here, use lake prove where the files are")
    home, prefix = str(lake.catalog.location.parent), lake.namespace.prefix

    class ProveCage:
        """What a token's trie says of a key."""

        def eval(self, chain: str, token: bytes, key: bytes, height: int | None = None) -> Iterator[tuple[Any, ...]]:
            from chainlake.cage.reader import CageReader

            own = octets(token, "the token"), octets(key, "the key")
            yield _row(CageReader(Path(home), chain, prefix=prefix).prove_fact(*own, height))

    class ProveUtxo:
        """Whether an output is unspent."""

        def eval(self, chain: str, place: str, height: int | None = None) -> Iterator[tuple[Any, ...]]:
            from chainlake.cage.reader import CageReader
            from chainlake.cage.settings import parse_txin

            yield _row(CageReader(Path(home), chain, prefix=prefix).prove_utxo(parse_txin(place or ""), height))

    for name, function in zip(NAMES, (ProveCage, ProveUtxo), strict=True):
        made: Any = udtf(function, returnType=COLUMNS)
        lake.spark.udtf.register(name, made)


def octets(value: Any, what: str) -> bytes:
    """Bytes that SQL gives, or text of their hex."""
    if value is None:
        raise BadInput(f"{what} is NULL: give it as X'…'")
    return from_hex(value, what) if isinstance(value, str) else bytes(value)


def _row(proven: "Proven") -> tuple[Any, ...]:
    import json

    text = json.dumps(proven.proof.to_json())
    return proven.height, proven.root, proven.key, proven.value, text, proven.proof.to_bytes()
