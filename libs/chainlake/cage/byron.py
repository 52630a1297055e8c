"""Transactions of the Byron era: `[inputs, outputs, attributes]`, an input being `[0, CBOR of [id, index]]` as a byte string.

The address of an output is the CBOR `[CBOR of the payload, checksum]`, as wallets show it in base58.
"""

from chainlake.cage.cbor import Span, embedded, end_of, items, octets, unsigned
from chainlake.cage.transaction import Tx, TxIn, TxOut
from chainlake.errors import BadInput
from chainlake.merkle.blake import blake

MOST_INDEX = 1 << 32
MOST_LOVELACE = 1 << 63


def transactions(raw: bytes, parts: list[Span]) -> list[Tx]:
    """The transactions of a main block with these parts: `[header, [[[tx, witnesses], …], …], …]`."""
    body = items(raw, parts[1][0], "the Byron body") if len(parts) > 1 else []
    if not body:
        raise BadInput("the Byron block has no body")
    return [_transaction(raw, pair) for pair, _ in items(raw, body[0][0], "the Byron transactions")]


def _transaction(raw: bytes, pair: int) -> Tx:
    parts = items(raw, pair, "a Byron transaction with witnesses")
    of = items(raw, parts[0][0], "a Byron transaction") if parts else []
    if len(of) < 2:
        raise BadInput(f"a Byron transaction without inputs or outputs at byte {pair}")
    first, end = parts[0]
    return Tx(
        tx_id=blake(raw[first:end]),
        is_valid=True,
        inputs=tuple(_input(raw, span[0]) for span in items(raw, of[0][0], "the inputs")),
        outputs=tuple(_output(raw, span) for span in items(raw, of[1][0], "the outputs")),
    )


def _input(raw: bytes, position: int) -> TxIn:
    parts = items(raw, position, "an input")
    if len(parts) != 2 or unsigned(raw, parts[0][0], "the kind of an input") != 0:
        raise BadInput(f"an input of an unknown kind at byte {position}")
    inner = embedded(raw, parts[1][0], "an input")
    spans = items(inner, 0, "an input") if inner and end_of(inner, 0) == len(inner) else []
    if len(spans) != 2:
        raise BadInput(f"an input is not an id and an index at byte {position}")
    tx_id, index = octets(inner, spans[0][0], "a transaction id"), unsigned(inner, spans[1][0], "an output's index")
    if len(tx_id) != 32 or index >= MOST_INDEX >> 1:
        raise BadInput(f"an input is of {len(tx_id)} bytes and index {index} at byte {position}")
    return TxIn(tx_id, index)


def _output(raw: bytes, span: Span) -> TxOut:
    parts = items(raw, span[0], "an output")
    if len(parts) != 2:
        raise BadInput(f"an output has {len(parts)} parts at byte {span[0]}")
    address, amount = parts
    lovelace = unsigned(raw, amount[0], "an amount")
    if lovelace >= MOST_LOVELACE:
        raise BadInput(f"an amount of {lovelace} lovelace at byte {amount[0]}: there are not so many")
    return TxOut(raw[address[0] : address[1]], lovelace, (), None, None, None, raw[span[0] : span[1]])
